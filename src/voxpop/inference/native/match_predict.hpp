// Each answer as predicted by the others of its row, with moments matched.
#pragma once

#include "match.hpp"
#include "mixture.hpp"

namespace voxpop::VOXPOP_VARIANT {

// M93: the answers of a block as predicted by all others of their rows.
inline void predict_answers(const MatchBatch& r, int64_t b, const LeftOut& out) {
    const Law& law = r.law;
    vec top = all(-infinite), reach = all(-infinite), whole = all(0.0), density = all(0.0);
    vec mean = all(0.0), variance = all(0.0), noise = all(0.0), pit = all(0.0);
    for (int64_t c = 0; c < law.C; ++c) {
        if (law.C > 1) top = max(top, r.without[c * r.blocks + b]);
        reach = max(reach, r.answers(c, b).total);
    }
    auto share_of = [&](int64_t c) VOXPOP_INLINE {
        return law.C == 1 ? all(1.0) : exp(r.without[c * r.blocks + b] - top);
    };
    for (int64_t c = 0; c < law.C; ++c) {
        const Matched& matched = r.answers(c, b);
        const vec share = share_of(c);
        const Scales mine = r.scales(c, b);
        vec below = all(0.0), wide = all(0.0), unused;
        for (int64_t g = 0; g < law.G; ++g) {
            const vec own = all(mine.variance[g]) + mine.spread;
            wide = fma(mine.share[g], own, wide);
            if (out.pit == nullptr) continue;
            const vec z = matched.distance / sqrt(own + matched.others);
            below = fma(mine.share[g], normal(z, unused), below);
        }
        whole = whole + share, density = density + share * exp(matched.total - reach);
        mean = fma(share, r.centre[b] - matched.distance, mean);
        variance = fma(share, matched.others, variance);
        pit = fma(share, below, pit), noise = fma(share, wide, noise);
    }
    mean = mean / whole;
    for (int64_t c = 0; c < law.C; ++c) {
        const vec away = r.centre[b] - r.answers(c, b).distance - mean;
        variance = fma(share_of(c), away * away, variance);
    }
    variance = variance / whole, noise = noise / whole, pit = min(pit / whole, all(1.0));
    const vec log_density =
        max(reach + log(density / whole) - all(0.91893853320467274178), all(-700.0));
    const vec bias = r.value[b] - r.centre[b];
    for (int lane = 0; lane < r.in_block(b); ++lane) {
        const int64_t at = r.edge[b * lanes + lane];
        out.log_density[at] = log_density[lane];
        if (out.pit != nullptr) out.pit[at] = pit[lane];
        out.mean[at] = mean[lane], out.truth_variance[at] = variance[lane];
        out.bias[at] = bias[lane], out.variance[at] = variance[lane] + noise[lane];
    }
}

static void match_predict(
    const IntegralLaw& given, const MatchInputs& in, const Messages& m, const LeftOut& out,
    int64_t first_chunk, int64_t last_chunk, Workspace& workspace) {
    const Law law(given);
    const Mixing mixing(law, workspace);
    MatchBatch r(law, mixing, in, m, workspace);
    const int64_t last = last_chunk * in.chunk < in.n_rows ? last_chunk * in.chunk : in.n_rows;
    for (int64_t row = first_chunk * in.chunk; row < last;) {
        row = r.open(row, last);
        for (int64_t b = 0; b < r.blocks; ++b) {
            if (law.C == 1) r.matched[b].find_total();
            predict_answers(r, b, out);
        }
    }
}

}  // namespace voxpop::VOXPOP_VARIANT
