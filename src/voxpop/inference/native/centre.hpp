// Answers as distances from the middle one of their task; one task per lane.
#pragma once

#include "messages.hpp"

namespace voxpop::VOXPOP_VARIANT {

// The middle of some numbers: half of them are below it. Every number is compared with
// every other, which is quick for a few.
inline vec middle_of(const vec* numbers, int64_t n, int64_t stride) {
    const vec one = all(1.0), none = all(0.0), half = all((double)(n / 2));
    vec found = numbers[0];
    for (int64_t u = 0; u < n; ++u) {
        const vec mine = numbers[u * stride];
        // Among equal ones the earlier counts as below.
        vec below = none;
        for (int64_t v = 0; v < u; ++v)
            below = below + where_above(numbers[v * stride], mine, none, one);
        for (int64_t v = u + 1; v < n; ++v)
            below = below + where_above(mine, numbers[v * stride], one, none);
        found = where_above(absolute(below - half), all(0.5), found, mine);
    }
    return found;
}

static void centre(
    const Centring& c, int64_t first_block, int64_t last_block, Workspace& workspace) {
    const int64_t d = c.dimension, width = c.degree * d;
    vec* value = (vec*)workspace.slot(0, lanes * (width + d));
    vec* origin = value + width;
    for (int64_t number = first_block; number < last_block; ++number) {
        const Block block(number, c.n_tasks);
        gather(c.value, width, block, (double*)value);
        for (int64_t j = 0; j < width; ++j) value[j] = value[j] * all(c.per_unit);
        for (int64_t j = 0; j < d; ++j) origin[j] = middle_of(value + j, c.degree, d);
        for (int64_t j = 0; j < width; ++j) value[j] = value[j] - origin[j % d];
        for (int lane = 0; lane < block.n_rows; ++lane) {
            double *away = c.away + block.row[lane] * width, *mine = c.origin + block.row[lane] * d;
            for (int64_t j = 0; j < width; ++j) away[j] = value[j][lane];
            for (int64_t j = 0; j < d; ++j) mine[j] = origin[j][lane];
        }
    }
}

}  // namespace voxpop::VOXPOP_VARIANT
