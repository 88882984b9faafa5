// The messages of rows to their workers about level and bias, with moments matched, and counts.
#pragma once

#include "match.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Sums over the rows of a chunk, as in IntegralFound, a lane each until they are written.
struct MatchCounts {
    vec *pairs, *classes, *components, pull, precision;  // pairs are as the mixing's lists

    MatchCounts(const Law& law, const Mixing& mixing, Workspace& workspace)
        : law_(law), mixing_(mixing), n_pairs_(mixing.first[law.C * law.G]) {
        pairs = (vec*)workspace.slot(10, lanes * (n_pairs_ + law.C + law.J));
        classes = pairs + n_pairs_, components = classes + law.C;
    }

    void clear() {
        for (int64_t i = 0; i < n_pairs_ + law_.C + law_.J; ++i) pairs[i] = all(0.0);
        pull = precision = all(0.0);
    }

    void write(double* out) const {
        const int64_t size = law_.C * law_.K * law_.G;
        for (int64_t i = 0; i < size; ++i) out[i] = 0.0;
        for (int64_t c = 0; c < law_.C; ++c)
            for (int64_t g = 0; g < law_.G; ++g)
                for (int64_t i = mixing_.first[c * law_.G + g];
                     i < mixing_.first[c * law_.G + g + 1]; ++i)
                    out[(c * law_.K + mixing_.level[i]) * law_.G + g] =
                        sum(pairs[i]) * mixing_.share[i];
        for (int64_t i = 0; i < law_.C + law_.J; ++i) out[size + i] = sum(classes[i]);
        out[size + law_.C + law_.J] = sum(pull), out[size + law_.C + law_.J + 1] = sum(precision);
    }

    // Rows by their classes and the components of their prior.
    void add_rows(const MatchBatch& r) {
        for (int64_t c = 0; c < law_.C; ++c)
            for (int64_t b = 0; b < r.row_blocks; ++b) {
                const vec mine = r.row_weight[c * r.row_blocks + b] * inside(r.n_rows - b * lanes);
                classes[c] = classes[c] + mine;
                if (law_.J == 0) continue;
                const Matched& matched = r.of_prior[c * r.row_blocks + b];
                const vec* gauss = r.prior_gauss + (c * r.row_blocks + b) * law_.J;
                const vec factor = mine * matched.per_whole();
                for (int64_t j = 0; j < law_.J; ++j) {
                    const vec share = factor * gauss[j] * all(law_.given.prior_weight[j]);
                    components[j] = components[j] + share;
                    precision = fma(share, all(1.0 / law_.given.prior_variance[j]), precision);
                }
                // x less the prior's mean: the distance is the other way round.
                pull = pull - mine * matched.distance * matched.slope;
            }
    }

private:
    const Law& law_;
    const Mixing& mixing_;
    int64_t n_pairs_;

    // One in lanes below n.
    static vec inside(int64_t n) {
        vec found = all(0.0);
        for (int lane = 0; lane < lanes; ++lane) found[lane] = lane < n ? 1.0 : 0.0;
        return found;
    }
};

// The messages about the levels of the answers of a block, in logs, and with `counts` the answers
// at every class, level and variance (M91):
//
//     m(k) ∝ Σ_c p(c) Σ_g mixing[c, k, g] N_g
inline void send_levels(const MatchBatch& r, int64_t b, vec* message, MatchCounts* counts) {
    const Law& law = r.law;
    const Mixing& mixing = r.mixing;
    const vec* level = r.level + b * law.K;
    vec top = all(-infinite), reach = all(-infinite);
    for (int64_t k = 0; k < law.K; ++k) message[k] = all(0.0);
    for (int64_t c = 0; c < law.C && law.C > 1; ++c) {
        top = max(top, r.without[c * r.blocks + b]);
        reach = max(reach, r.answers(c, b).top);
    }
    for (int64_t c = 0; c < law.C; ++c) {
        const Matched& matched = r.answers(c, b);
        const vec* gauss = r.gauss + (c * r.blocks + b) * law.G;
        const vec factor = law.C == 1 ? all(1.0)
                                      : exp(r.without[c * r.blocks + b] - top) *
                                            exp(matched.top - reach);
        vec counted = matched.if_usable(r.weight[c * r.blocks + b] * matched.per_whole());
        counted = keep_above(all(infinite), counted, counted);
        for (int64_t g = 0; g < law.G; ++g) {
            const vec mine = gauss[g] * factor, count = gauss[g] * counted;
            const int64_t* of = mixing.first + c * law.G + g;
            for (int64_t i = of[0]; i < of[1]; ++i) {
                vec& total = message[mixing.level[i]];
                total = fma(mine, all(mixing.share[i]), total);
                if (counts != nullptr)
                    counts->pairs[i] = fma(count, level[mixing.level[i]], counts->pairs[i]);
            }
        }
    }
    for (int64_t k = 0; k < law.K; ++k) message[k] = log(max(message[k], all(unsafe_share)));
}

// Round messages, put them in the place of the old ones and add them to the sums.
inline void put_messages(const MatchBatch& r, int64_t b, vec* message, int64_t* new_sums) {
    const Messages& m = r.m;
    const vec usable = r.answers(0, b).usable;
    const int n = r.in_block(b);
    vec top = all(-infinite);
    for (int64_t k = 0; k < r.law.K; ++k) top = max(top, message[k]);
    for (int64_t k = 0; k < r.law.K; ++k)
        message[k] = where_above(usable, all(0.5), max(message[k] - top, all(m.floor)), all(0.0));
    const vec per_quantum = all(1.0 / m.quantum);
    for_few(r.law.K, [&](auto count, int64_t first) VOXPOP_INLINE {
        ivec after[4];
        if (m.damping != 0.0) {
            const int64_t* own[lanes];
            for (int lane = 0; lane < lanes; ++lane)
                own[lane] = m.message + r.edge[b * lanes + lane] * r.law.K + first;
            to_lanes<count.value>(own, after);
            for (int k = 0; k < count.value; ++k)
                message[first + k] = all(1.0 - m.damping) * message[first + k] +
                                     all(m.damping * m.quantum) * to_double(after[k]);
        }
        for (int k = 0; k < count.value; ++k)
            after[k] = round_to_int(message[first + k] * per_quantum);
        to_rows<count.value>(after, [&](int lane, few numbers) VOXPOP_INLINE {
            if (lane >= n) return;
            const int64_t e = r.edge[b * lanes + lane];
            store_few<count.value>(m.message + e * r.law.K + first, numbers);
            add_few<count.value>(new_sums + m.worker[e] * r.law.K + first, numbers);
        });
    });
}

// M31 with the mean and variance of the truth given the others: messages about the biases.
inline void send_biases(const MatchBatch& r, int64_t b) {
    const MatchInputs& in = r.in;
    vec first = all(0.0), second = all(0.0);
    for (int64_t c = 0; c < r.law.C; ++c) {
        const Matched& mine = r.answers(c, b);
        const vec weight = r.weight[c * r.blocks + b];
        first = first + mine.if_usable(weight * mine.distance * mine.slope);
        second = second + mine.if_usable(weight * mine.curve);
    }
    const vec before = r.spread[b], shift = before * first;
    const vec variance = before - before * (before * second) - shift * shift;
    const vec old = r.value[b] - r.centre[b];
    for (int lane = 0; lane < r.in_block(b); ++lane) {
        const int64_t e = r.edge[b * lanes + lane];
        put_bias(before[lane], old[lane], shift[lane], variance[lane], r.law.given.bias_damping,
                 in.edge_precision[e], in.edge_pull[e]);
    }
}

static double match(
    const IntegralLaw& given, const MatchInputs& in, const Messages& m, const MatchFound& found,
    int64_t first_chunk, int64_t last_chunk, int64_t* new_sums, Workspace& workspace) {
    const Law law(given);
    const Mixing mixing(law, workspace);
    MatchBatch r(law, mixing, in, m, workspace);
    MatchCounts counts(law, mixing, workspace);
    vec* message = (vec*)workspace.slot(2, lanes * law.K);
    for (int64_t chunk = first_chunk; chunk < last_chunk; ++chunk) {
        counts.clear();
        double moved = 0.0;
        const int64_t end = (chunk + 1) * in.chunk < in.n_rows ? (chunk + 1) * in.chunk : in.n_rows;
        for (int64_t row = chunk * in.chunk; row < end;) {
            row = r.open(row, end);
            r.prefetch(row, in.n_rows, new_sums);
            for (int64_t b = 0; b < r.blocks; ++b) {
                send_levels(r, b, message, found.counts != nullptr ? &counts : nullptr);
                put_messages(r, b, message, new_sums);
                if (in.bias != nullptr) send_biases(r, b);
            }
            for (int64_t c = 0; c < law.C; ++c)
                for (int64_t i = 0; i < r.n_rows; ++i)
                    found.evidence[r.row[i] * law.C + c] =
                        ((double*)(r.evidence + c * r.row_blocks))[i];
            if (found.counts != nullptr) counts.add_rows(r);
            moved += r.renew();
        }
        found.moved[chunk] = moved;
        if (found.counts != nullptr) counts.write(found.counts + chunk * n_counts(given));
    }
    return 0.0;
}

}  // namespace voxpop::VOXPOP_VARIANT
