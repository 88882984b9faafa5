// How the halves of a task grow, worker by worker, and how they meet.
#include "tables.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace voxpop {

static const double half_log2_e = 0.5 / std::log(2.0);
// 2^100 times what underflows is still far below the 1e-200 from which the kernel trusts a sum.
static const double largest_offset = 100.0;

Tables::Side Tables::grow(const std::vector<double>& levels, int64_t n_workers, double start) {
    const int64_t K = (int64_t)levels.size();
    const int64_t widest = std::max_element(levels.begin(), levels.end()) - levels.begin();
    Side side{{n_workers, 1, 0, 1, nullptr, nullptr}, {}, {}, {start}, {0.0}, {}};
    for (int64_t u = 0; u < n_workers; ++u) {
        std::vector<double> precision, log_product;
        for (int64_t p = 0; p < side.n_configurations; ++p)
            for (double level : levels) {
                double before = side.precision[p], own = 1.0 / level, after = before + own;
                side.gains.push_back(own / after);
                side.costs.push_back(-half_log2_e * before * (own / after));
                precision.push_back(after);
                log_product.push_back(side.log_product[p] + std::log(level));
            }
        side.precision_before.swap(side.precision);
        side.precision.swap(precision);
        side.log_product.swap(log_product);
        side.n_configurations *= K;
        side.tree_size += side.n_configurations;
        side.widest = side.widest * K + widest;
    }
    side.gain = side.gains.data(), side.cost = side.costs.data();
    return side;
}

// Give equal rows to left configurations with equally many workers at each level; return one
// configuration per row. Precisions are sums over workers, so their order does not matter.
std::vector<int64_t> Tables::number_rows() {
    const int64_t K = n_levels();
    std::map<std::vector<int64_t>, int32_t> known;
    std::vector<int64_t> first;
    for (int64_t a = 0; a < left_.n_configurations; ++a) {
        std::vector<int64_t> count(K, 0);
        int64_t rest = a;
        for (int64_t u = 0; u < left_.n_workers; ++u, rest /= K) ++count[rest % K];
        auto [at, is_new] = known.try_emplace(count, (int32_t)first.size());
        if (is_new) first.push_back(a);
        row_.push_back(at->second);
    }
    return first;
}

// All in powers of two, W_p of the right half without its last worker and w of that one:
//
//     pair[row of a, p] = -(log2 e)/2 W_a W_p / (W_a + W_p),  W_p / (W_a + W_p)
//     join[row of a, b] = -(log2 e)/2 (W_a + W_p) w / W,
//                         -(log2 e) d/2 (log W + Σ_u log s_u) + constant
//
// The constant brings the offset of the widest levels to 0, as the kernel does with their sum of
// squares: their factor is then 1, and a little below the largest. No offset may be so large that
// a term lost to underflow could show.
Tables::Tables(
    const std::vector<double>& levels, int64_t degree, int64_t dimension, double prior_precision)
    : levels(levels), degree(degree), dimension(dimension), prior_precision(prior_precision),
      left_(grow(levels, degree / 2, prior_precision)),
      right_(grow(levels, degree - degree / 2, 0.0)) {
    double highest = -INFINITY;
    for (int64_t a : number_rows()) {
        const double left = left_.precision[a];
        for (double before : right_.precision_before) {
            // Without any precision before, the last worker joins at no cost.
            const double share = left + before > 0.0 ? before / (left + before) : 0.0;
            pair_.push_back(-half_log2_e * left * share);
            pair_.push_back(share);
        }
        for (int64_t b = 0; b < right_.n_configurations; ++b) {
            const double own = 1.0 / levels[b % n_levels()], right = right_.precision[b];
            const double before = left + right_.precision_before[b / n_levels()];
            const double all = left + right;
            double offset = std::log(all) + left_.log_product[a] + right_.log_product[b];
            offset *= -half_log2_e * (double)dimension;
            join_.push_back(-half_log2_e * before * (own / all));
            join_.push_back(offset);
            meet_.push_back(right / all);
            meet_.push_back(1.0 / all);
            highest = std::max(highest, offset);
        }
    }
    const size_t widest = row_[left_.widest] * right_.n_configurations + right_.widest;
    const double zero = std::max(join_[2 * widest + 1], highest - largest_offset);
    for (size_t i = 1; i < join_.size(); i += 2) join_[i] -= zero;
}

Enumeration Tables::enumeration() const {
    return Enumeration{.dimension = dimension, .left = left_, .right = right_,
                       .row = row_.data(), .pair = pair_.data(), .join = join_.data(),
                       .meet = meet_.data(), .levels = levels.data(),
                       .prior_precision = prior_precision};
}

}  // namespace voxpop
