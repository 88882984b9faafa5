// The posterior of the truths of a block of tasks, from the beliefs in all configurations.
#pragma once

#include "enumerate_logs.hpp"
#include "mixture.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Components below this share of a mixture, divided by their number, are left out of quantiles.
constexpr double dropped_mass = 1e-9;

// Write the quantiles of one task in one coordinate, from `quantile` on.
inline void write_quantiles(const Truths& t, const Mixture& mixture, int64_t j, double* quantile) {
    const int64_t q = t.n_probabilities;
    for (int64_t first = 0; first < q; first += lanes) {
        // Lanes past the last probability repeat it.
        vec p, standard;
        for (int i = 0; i < lanes; ++i) {
            const int64_t from = first + i < q ? first + i : q - 1;
            p[i] = t.probabilities[from], standard[i] = t.standard[from];
        }
        const vec found = mixture_quantile(mixture, j, p, standard);
        for (int i = 0; i < lanes && first + i < q; ++i) quantile[first + i] = found[i];
    }
}

// M6, M7, M8: write the posterior of the truths of a block: mean, variance (the mean of 1/W plus
// the variance of the means) and quantiles of mixtures of n components.
//
// `components` calls its argument with the share of each, its 1/W, and a function that returns its
// mean in a coordinate.
template <class Components>
static void write_posterior(
    const Truths& t, const Block& block, int64_t d, int64_t n, Workspace& workspace,
    Components components) {
    for (int64_t j = 0; j < d; ++j) {
        vec mean = all(0.0), variance = all(0.0);
        components([&](const vec& share, const vec&, auto centre) VOXPOP_INLINE {
            mean = fma(share, centre(j), mean);
        });
        components([&](const vec& share, const vec& own, auto centre) VOXPOP_INLINE {
            const vec away = centre(j) - mean;
            variance = fma(share, fma(away, away, own), variance);
        });
        for (int lane = 0; lane < block.n_rows; ++lane)
            if (block.wanted[lane]) {
                t.estimate[block.row[lane] * d + j] = mean[lane];
                t.variance[block.row[lane] * d + j] = variance[lane];
            }
    }
    if (t.n_probabilities == 0) return;
    const double least = dropped_mass / (double)n;
    double* weight = workspace.slot(3, n * (2 + d));
    double *sd = weight + n, *mean = sd + n;
    for (int lane = 0; lane < block.n_rows; ++lane) {
        if (!block.wanted[lane]) continue;
        // The components that matter, with weights that sum to 1.
        Mixture mixture{0, d, weight, sd, mean};
        double total = 0.0;
        components([&](const vec& share, const vec& variance, auto centre) VOXPOP_INLINE {
            if (!(share[lane] > least)) return;
            const int64_t i = mixture.n++;
            weight[i] = share[lane], total += share[lane];
            sd[i] = __builtin_sqrt(variance[lane]);
            for (int64_t j = 0; j < d; ++j) mean[i * d + j] = centre(j)[lane];
        });
        for (int64_t i = 0; i < mixture.n; ++i) weight[i] /= total;
        for (int64_t j = 0; j < d; ++j)
            write_quantiles(
                t, mixture, j, t.quantile + (block.row[lane] * d + j) * t.n_probabilities);
    }
}

// M5: belief in every configuration (C times all messages, in shares of the sum), and the mean of
// the truth in it, which is that of the halves by their precisions.
//
//     m = m_a + W_b / W (m_b - m_a)
static void enumerate_posterior_of(
    const Enumeration& e, const Truths& t, const Block& block, Workspace& workspace) {
    const Messages& m = t.messages;
    const int64_t K = m.n_levels, d = e.dimension;
    const int64_t n_left = e.left.n_configurations, n_right = e.right.n_configurations;
    EnumerationArrays s = carve(e, m, workspace);
    vec* belief = (vec*)workspace.slot(2, lanes * (n_left * n_right + n_left + n_right));
    vec *left_joint = belief + n_left * n_right, *right_joint = left_joint + n_left;
    gather(e.value, m.degree * d, block, (double*)s.value);
    gather(e.prior_mean, d, block, (double*)s.prior_mean);
    receive<0>(m, block, s.old, s.message);
    for (int64_t j = 0; j < m.degree * K; ++j) s.message[j] = s.message[j] * all(log2_e);
    grow_halves<0, 0>(e, e.right.n_workers, K, s);
    for (int64_t a = 0; a < n_left; ++a) left_joint[a] = log_joint(e.left, K, s.message, a);
    for (int64_t b = 0; b < n_right; ++b)
        right_joint[b] = log_joint(e.right, K, s.message + e.left.n_workers * K, b);
    vec top = all(log_nothing), total = all(0.0);
    visit_factors(e, K, s, [&](int64_t a, int64_t b, vec log_c) {
        const vec log_belief = log_c + left_joint[a] + right_joint[b];
        belief[a * n_right + b] = log_belief;
        top = max(top, log_belief);
    });
    for (int64_t c = 0; c < n_left * n_right; ++c) {
        belief[c] = exp2(belief[c] - top);
        total = total + belief[c];
    }
    for (int64_t c = 0; c < n_left * n_right; ++c) belief[c] = belief[c] / total;
    const Leaves leaves(e, K, s);
    write_posterior(t, block, d, n_left * n_right, workspace, [&](auto visit) VOXPOP_INLINE {
        for (int64_t a = 0; a < n_left; ++a)
            for (int64_t b = 0; b < n_right; ++b) {
                const double* meet = e.meet + 2 * (e.row[a] * n_right + b);
                visit(belief[a * n_right + b], all(meet[1]), [&](int64_t j) VOXPOP_INLINE {
                    const vec left = leaves.mean_a[a * d + j];
                    return fma(leaves.mean_b[b * d + j] - left, all(meet[0]), left);
                });
            }
    });
}

static void enumerate_posterior(
    const Enumeration& e, const Truths& t, int64_t first_block, int64_t last_block,
    Workspace& workspace) {
    for (int64_t number = first_block; number < last_block; ++number)
        enumerate_posterior_of(e, t, Block(number, t.messages.n_tasks), workspace);
}

}  // namespace voxpop::VOXPOP_VARIANT
