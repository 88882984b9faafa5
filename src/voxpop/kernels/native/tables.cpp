// How the halves of a task grow, worker by worker, and how they meet.
#include "tables.hpp"

#include <algorithm>
#include <cmath>

namespace voxpop {

static const double half_log2_e = 0.5 / std::log(2.0);

Tables::Side Tables::grow(
    const std::vector<double>& levels, int64_t n_workers, double start) {
    const int64_t K = (int64_t)levels.size();
    const int64_t widest = std::max_element(levels.begin(), levels.end()) - levels.begin();
    Side side{n_workers, 1, 0, 1, {}, {}, {start}, {0.0}};
    for (int64_t u = 0; u < n_workers; ++u) {
        std::vector<double> precision, log_product;
        for (int64_t p = 0; p < side.n_configurations; ++p)
            for (double level : levels) {
                double before = side.precision[p], own = 1.0 / level, after = before + own;
                side.gain.push_back(own / after);
                side.cost.push_back(-half_log2_e * before * (own / after));
                precision.push_back(after);
                log_product.push_back(side.log_product[p] + std::log(level));
            }
        side.precision.swap(precision);
        side.log_product.swap(log_product);
        side.n_configurations *= K;
        side.tree_size += side.n_configurations;
        side.widest = side.widest * K + widest;
    }
    return side;
}

// cross[a, b] = (factor, offset) of the exponent, in powers of two:
//
//     factor = -(log2 e)/2 W_a W_b / W,   offset = -(log2 e) d/2 (log W + Σ_u log s_u) - its max
Tables::Tables(
    const std::vector<double>& levels, int64_t degree, int64_t dimension, double prior_precision)
    : n_levels_((int64_t)levels.size()),
      degree_(degree),
      dimension_(dimension),
      has_prior_(prior_precision > 0.0),
      left_(grow(levels, degree / 2, prior_precision)),
      right_(grow(levels, degree - degree / 2, 0.0)) {
    cross_.reserve(2 * n_configurations());
    double highest = -INFINITY;
    for (int64_t a = 0; a < left_.n_configurations; ++a)
        for (int64_t b = 0; b < right_.n_configurations; ++b) {
            double left = left_.precision[a], right = right_.precision[b], all = left + right;
            double offset = std::log(all) + left_.log_product[a] + right_.log_product[b];
            offset *= -half_log2_e * (double)dimension;
            cross_.push_back(-half_log2_e * left * (right / all));
            cross_.push_back(offset);
            highest = std::max(highest, offset);
        }
    for (size_t i = 1; i < cross_.size(); i += 2) cross_[i] -= highest;
}

Half Tables::half(const Side& side) {
    return Half{side.n_workers, side.n_configurations, side.widest, side.tree_size,
                side.gain.data(), side.cost.data()};
}

Enumeration Tables::enumeration() const {
    return Enumeration{dimension_, half(left_), half(right_), cross_.data(), has_prior_,
                       nullptr, nullptr, Factor::recompute, nullptr};
}

}  // namespace voxpop
