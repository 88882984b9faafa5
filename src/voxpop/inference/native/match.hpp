// Moment matching: each answer of a row as one Gaussian about it, so that no integral is left.
//
// The same as kernels/match.py, row by row; lanes are variances, or levels. Of function u held
// against what all others say of the truth, N(mean, others), with V_g = v_g + gamma_u + others and
// d = a_u - mean (M90):
//
//     Z = Σ_g share_g N(d | 0, V_g),  slope E[1/V],  curve E[1/V - d²/V²],
//     site = E[1/V] / E[(v + gamma)/V]
#pragma once

#include "integrate_sweep.hpp"
#include "mixture.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Rounds in which sites are found before the first messages.
constexpr int first_rounds = 3;

// What all others of a row say of its truth.
struct Others {
    double mean, variance;  // infinite where nobody says anything
};

// A function held against that: Z is `whole` times exp(reach).
struct Held {
    Others others;
    double distance, whole, reach, slope, curve, precision;
    double top;  // the Gaussians' values are over exp of this
    bool usable;

    // The log of Z.
    double total() const { return usable ? reach + __builtin_log(whole) : 0.0; }

    // exp(top) over Z: what makes shares of the Gaussians' values.
    double per_whole() const {
        return (top == reach ? 1.0 : __builtin_exp(top - reach)) / whole;
    }

    // Log of the height of a site: with it the Gaussian has the density that the mixture has.
    double log_factor(double site) const {
        const double wider = 1.0 + (usable ? others.variance : 0.0) * site;
        return total() + 0.5 * __builtin_log(wider) + 0.5 * distance * distance * site / wider;
    }
};

// A mixture of Gaussians about one centre, in vectors.
struct Scales {
    int64_t n_vectors;
    vec *variance, *share;
    double widest;

    // Hold it against others; the Gaussians' values are left in `gauss`.
    Held hold(double centre, const Others& others, vec* gauss) const {
        Held found{others, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, others.variance < infinite};
        const double more = found.usable ? others.variance : 0.0;
        found.distance = found.usable ? centre - others.mean : 0.0;
        const vec half_square = all(-0.5 * found.distance * found.distance);
        found.top = found.reach = half_square[0] / (widest + more);
        found.whole = evaluate(half_square, more, 0.0, found.top, gauss, found);
        if (found.whole < unsafe_sum) {
            // What has a share is far below what has none: sums are over that alone, in its own
            // scale. The Gaussians' values are for messages, which are about all levels.
            vec reached = all(-infinite);
            for (int64_t i = 0; i < n_vectors; ++i)
                reached = max(reached, where_above(share[i], all(unsafe_share),
                                                   half_square / (variance[i] + all(more)),
                                                   all(-infinite)));
            found.reach = largest(reached);
            found.whole = evaluate(half_square, more, unsafe_share, found.reach, gauss, found);
            Held unused = found;
            evaluate(half_square, more, 0.0, found.top, gauss, unused);
        }
        return found;
    }

private:
    double evaluate(
        vec half_square, double more, double least, double top, vec* gauss, Held& found) const {
        vec whole = all(0.0), slope = all(0.0), curve = all(0.0), narrow = all(0.0);
        for (int64_t i = 0; i < n_vectors; ++i) {
            const vec per_wide = all(1.0) / (variance[i] + all(more));
            gauss[i] = exp(min(fma(half_square, per_wide, all(-top)), all(0.0))) * sqrt(per_wide);
            const vec part = gauss[i] * keep_above(share[i], all(least), share[i]);
            const vec here = part * per_wide;
            whole = whole + part, slope = slope + here;
            // Without squares of precisions, which may overflow.
            curve = fma(here, fma(half_square + half_square, per_wide, all(1.0)), curve);
            narrow = fma(here, variance[i], narrow);
        }
        const double all_of_it = sum(whole);
        found.slope = sum(slope) / all_of_it, found.curve = sum(curve) / all_of_it;
        found.precision = sum(slope) / sum(narrow);
        return all_of_it;
    }
};

// One vector of the numbers of a worker or a message, one a level; past the last, zeros.
inline ivec load_levels(const int64_t* from, int64_t i, int64_t n_levels) {
    if ((i + 1) * lanes <= n_levels) return *(const loose_ivec*)(from + i * lanes);
    ivec found = {};
    for (int lane = 0; i * lanes + lane < n_levels; ++lane) found[lane] = from[i * lanes + lane];
    return found;
}

// The answers of one row under all classes.
class MatchedRow {
public:
    const Law& law;
    const MatchInputs& in;
    const Messages& m;
    int64_t row = 0, first = 0, degree = 0;
    bool known = false;
    double *centre, *spread, *weight;  // (degree), (degree), (C): probability of each class
    vec* level;                        // (degree, k_vectors), adding up to one
    Held* held;                        // (C, degree)
    Held* of_prior;                    // (C)
    double* evidence;                  // (C)
    Scales answer, prior;
    vec *gauss, *prior_gauss;          // (C, degree, g_vectors), (j_vectors)

    MatchedRow(const Tables& t, const MatchInputs& in, const Messages& m, int64_t most,
               Workspace& workspace)
        : law(t.law), in(in), m(m), t_(t) {
        const int64_t C = law.C, per_held = sizeof(Held) / sizeof(double);
        const int64_t j_vectors = vectors(law.J > 0 ? law.J : 1);
        vec* next = (vec*)workspace.slot(
            1, lanes * (most * (t.k_vectors + C * t.g_vectors) + 3 * t.g_vectors + 3 * j_vectors +
                        t.k_vectors + C * law.K * t.g_vectors) +
                   most * (4 + C * per_held) + C * (per_held + 2));
        auto take = [&next](int64_t size) { return (next += size) - size; };
        level = take(most * t.k_vectors);
        answer = {t.g_vectors, take(t.g_vectors), take(t.g_vectors), 0.0};
        prior = {j_vectors, take(j_vectors), take(j_vectors), 0.0};
        gauss = take(most * C * t.g_vectors), prior_gauss = take(j_vectors);
        by_level_ = take(C * law.K * t.g_vectors);
        variance_ = take(t.g_vectors), log_weights_ = take(t.k_vectors);
        for (int64_t g = 0; g < t.g_vectors * lanes; ++g)
            ((double*)variance_)[g] = law.given.variance[g < law.G ? g : law.G - 1];
        for (int64_t g = 0; g < law.G; ++g)
            widest_ = law.given.variance[g] > widest_ ? law.given.variance[g] : widest_;
        for (int64_t k = 0; k < t.k_vectors * lanes; ++k)
            ((double*)log_weights_)[k] = k < law.K ? m.log_weights[k] : -infinite;
        centre = (double*)next, spread = centre + most;
        precision_after_ = spread + most, pull_after_ = precision_after_ + most;
        held = (Held*)(pull_after_ + most), of_prior = held + C * most;
        evidence = (double*)(of_prior + C), weight = evidence + C;
        for (int64_t i = 0; i < C * law.K * t.g_vectors * lanes; ++i) ((double*)by_level_)[i] = 0.0;
        for (int64_t c = 0; c < C; ++c)
            for (int64_t k = 0; k < law.K; ++k)
                for (int64_t g = 0; g < law.G; ++g)
                    ((double*)(by_level_ + (c * law.K + k) * t.g_vectors))[g] = law.mixing(c, k, g);
        for (int64_t i = 0; i < j_vectors * lanes; ++i) {
            const int64_t j = i < law.J ? i : law.J - 1;
            ((double*)prior.variance)[i] = law.J > 0 ? law.given.prior_variance[j] : 1.0;
            ((double*)prior.share)[i] = i < law.J ? law.given.prior_weight[i] : 0.0;
            const double mine = ((double*)prior.variance)[i];
            prior.widest = mine > prior.widest ? mine : prior.widest;
        }
    }

    // Take up a row: answers less what is believed of their workers' biases, and shares of levels.
    void open(int64_t number) {
        row = number, first = in.ptr[row], degree = in.ptr[row + 1] - first;
        known = in.known[row] == in.known[row];
        for (int64_t u = 0; u < degree; ++u) {
            const int64_t e = first + u;
            const int32_t worker = m.worker[e];
            centre[u] = in.value[e], spread[u] = 0.0;
            if (in.bias != nullptr) {
                const double precision = in.bias_precision[worker] - in.edge_precision[e];
                const double pull = in.bias[worker] * in.bias_precision[worker] - in.edge_pull[e];
                spread[u] = 1.0 / (precision > 1e-300 ? precision : 1e-300);
                centre[u] -= pull * spread[u];
            }
            hear(worker, e, level + u * t_.k_vectors);
        }
        for (int64_t c = 0; c < law.C; ++c) find(c);
        weigh();
    }

    // Variances and their shares in an answer.
    void open_answer(int64_t c, int64_t u) {
        for (int64_t i = 0; i < t_.g_vectors; ++i) answer.share[i] = all(0.0);
        const double* mine = (const double*)(level + u * t_.k_vectors);
        for (int64_t k = 0; k < law.K; ++k) {
            if (mine[k] == 0.0) continue;
            const vec* mixing = by_level_ + (c * law.K + k) * t_.g_vectors;
            for (int64_t i = 0; i < t_.g_vectors; ++i)
                answer.share[i] = fma(all(mine[k]), mixing[i], answer.share[i]);
        }
        for (int64_t i = 0; i < t_.g_vectors; ++i)
            answer.variance[i] = variance_[i] + all(spread[u]);
        answer.widest = widest_ + spread[u];
    }

    // Probability of a class without what an answer says of it, up to a factor, in logs.
    double log_without(int64_t c, int64_t u) const {
        return in.log_class[row * law.C + c] + evidence[c] - held[c * degree + u].total();
    }

    // Put the sites in place of the old ones; return how far that moves the truth, in sds, squared.
    double renew() {
        double moved = 0.0;
        for (int64_t c = 0; c < law.C; ++c) {
            const Others before = truth(c);
            take_over(c);
            const Others after = truth(c);
            const double by = after.mean - before.mean;
            if (!known) moved += weight[c] * by * by / after.variance;
        }
        return moved;
    }

private:
    const Tables& t_;
    vec *by_level_, *variance_, *log_weights_;  // (C, K, g_vectors), (g_vectors), (k_vectors)
    double *precision_after_, *pull_after_, widest_ = 0.0;

    double& site(int64_t c, int64_t u) const { return in.site[c * in.n_edges + first + u]; }
    double& prior_site(int64_t c) const { return in.prior_site[c * in.n_rows + row]; }

    void hear(int32_t worker, int64_t e, vec* mine) const {
        const int64_t *sums = m.sums + worker * law.K, *own = m.message + e * law.K;
        vec top = all(-infinite), whole = all(0.0);
        for (int64_t i = 0; i < t_.k_vectors; ++i) {
            const ivec units = load_levels(sums, i, law.K) - load_levels(own, i, law.K);
            mine[i] = fma(to_double(units), all(m.quantum), log_weights_[i]);
            top = max(top, mine[i]);
        }
        const vec highest = all(largest(top));
        for (int64_t i = 0; i < t_.k_vectors; ++i)
            whole = whole + (mine[i] = exp(max(mine[i] - highest, all(-1e5))));
        const vec per_whole = all(1.0 / sum(whole));
        for (int64_t i = 0; i < t_.k_vectors; ++i) mine[i] = mine[i] * per_whole;
    }

    // Sites and cavities of a class.
    void find(int64_t c) {
        bool fresh = false;
        for (int64_t u = 0; u < degree; ++u)
            if (site(c, u) == 0.0) {
                fresh = true;
                open_answer(c, u);
                vec total = all(0.0);
                for (int64_t i = 0; i < t_.g_vectors; ++i)
                    total = fma(answer.share[i], log(answer.variance[i]), total);
                site(c, u) = __builtin_exp(-sum(total));
            }
        if (law.J > 0 && prior_site(c) == 0.0) {
            prior_site(c) = 1.0 / prior.widest;
        }
        for (int round = 0; fresh && round < first_rounds; ++round) {
            hold_all(c);
            take_over(c);
        }
        hold_all(c);
    }

    void hold_all(int64_t c) {
        double precision = law.J > 0 ? prior_site(c) : 0.0;
        double pull = precision * in.prior_mean[row], without_prior = 0.0, pull_without = 0.0;
        for (int64_t u = degree - 1; u >= 0; --u) {
            precision_after_[u] = without_prior, pull_after_[u] = pull_without;
            without_prior += site(c, u), pull_without += site(c, u) * centre[u];
        }
        for (int64_t u = 0; u < degree; ++u) {
            open_answer(c, u);
            held[c * degree + u] = answer.hold(
                centre[u], seen(precision + precision_after_[u], pull + pull_after_[u]),
                gauss + (c * degree + u) * t_.g_vectors);
            precision += site(c, u), pull += site(c, u) * centre[u];
        }
        if (law.J > 0)
            of_prior[c] =
                prior.hold(in.prior_mean[row], seen(without_prior, pull_without), prior_gauss);
    }

    Others seen(double precision, double pull) const {
        if (known) return {in.known[row], 0.0};
        return precision > 0.0 ? Others{pull / precision, 1.0 / precision} : Others{0.0, infinite};
    }

    void take_over(int64_t c) {
        for (int64_t u = 0; u < degree; ++u)
            if (held[c * degree + u].usable) site(c, u) = held[c * degree + u].precision;
        if (law.J > 0) prior_site(c) = of_prior[c].precision;
    }

    // Mean and variance of the truth as all sites say.
    Others truth(int64_t c) const {
        double precision = law.J > 0 ? prior_site(c) : 0.0, pull = precision * in.prior_mean[row];
        for (int64_t u = 0; u < degree; ++u)
            precision += site(c, u), pull += site(c, u) * centre[u];
        return {pull / precision, 1.0 / precision};
    }

    // M92: log of the density of all answers under each class, and the classes' probabilities.
    void weigh() {
        evidence[0] = 0.0, weight[0] = 1.0;
        if (law.C == 1) return;
        double top = -infinite, whole = 0.0;
        for (int64_t c = 0; c < law.C; ++c) {
            double found = 0.0;
            const Others x = truth(c);
            for (int64_t u = 0; u < degree; ++u) {
                const Held& mine = held[c * degree + u];
                const double away = centre[u] - x.mean;
                found += known ? mine.total()
                               : (mine.usable ? mine.log_factor(site(c, u)) : 0.0) -
                                     0.5 * site(c, u) * away * away;
            }
            if (!known) {
                found += 0.5 * __builtin_log(x.variance);
                const double away = in.prior_mean[row] - x.mean;
                if (law.J > 0)
                    found += of_prior[c].log_factor(prior_site(c)) -
                             0.5 * prior_site(c) * away * away;
            }
            evidence[c] = found;
            const double joint = in.log_class[row * law.C + c] + found;
            top = joint > top ? joint : top;
        }
        for (int64_t c = 0; c < law.C; ++c)
            whole += weight[c] = __builtin_exp(in.log_class[row * law.C + c] + evidence[c] - top);
        for (int64_t c = 0; c < law.C; ++c) weight[c] /= whole;
    }
};

// The message about the level of an answer, in logs: m(k) ∝ Σ_c p(c) Σ_g mixing[c, k, g] N_g (M91);
// and with `pairs` the answer counted at every class, level and variance, less the mixing.
inline void say_level(MatchedRow& r, const Tables& t, int64_t u, vec* message, vec* pairs) {
    const Law& law = r.law;
    for (int64_t i = 0; i < t.k_vectors; ++i) message[i] = all(0.0);
    double top = -infinite, reach = -infinite;
    for (int64_t c = 0; c < law.C && law.C > 1; ++c) {
        const double mine = r.log_without(c, u);
        top = mine > top ? mine : top;
    }
    for (int64_t c = 0; c < law.C; ++c) {
        const double mine = r.held[c * r.degree + u].top;
        reach = mine > reach ? mine : reach;
    }
    for (int64_t c = 0; c < law.C; ++c) {
        const Held& held = r.held[c * r.degree + u];
        const double share = law.C == 1 ? 1.0 : __builtin_exp(r.log_without(c, u) - top);
        const double factor = law.C == 1 ? 1.0 : share * __builtin_exp(held.top - reach);
        const double* gauss = (const double*)(r.gauss + (c * r.degree + u) * t.g_vectors);
        const double counted =
            pairs == nullptr ? 0.0 : r.weight[c] * held.per_whole();
        for (int64_t g = 0; g < law.G; ++g) {
            const vec mine = all(gauss[g] * factor), count = all(gauss[g] * counted);
            const vec* mixing = t.by_variance + (c * law.G + g) * t.k_vectors;
            for (int64_t i = 0; i < t.k_vectors; ++i)
                message[i] = fma(mine, mixing[i], message[i]);
            if (counted > 0.0 && counted < infinite)
                for (int64_t i = 0; i < t.k_vectors; ++i) {
                    vec& pair = pairs[(c * law.G + g) * t.k_vectors + i];
                    pair = fma(count, r.level[u * t.k_vectors + i], pair);
                }
        }
    }
    for (int64_t i = 0; i < t.k_vectors; ++i)
        message[i] = log(max(message[i], all(unsafe_share)));
}

// M31 with the truth's mean and variance as the others say: what is learned of a bias.
inline void say_bias(const MatchedRow& r, int64_t u) {
    const MatchInputs& in = r.in;
    const double before = r.spread[u], old = in.value[r.first + u] - r.centre[u];
    double first = 0.0, second = 0.0;
    for (int64_t c = 0; c < r.law.C; ++c) {
        const Held& mine = r.held[c * r.degree + u];
        if (!mine.usable) continue;
        first += r.weight[c] * mine.distance * mine.slope;
        second += r.weight[c] * mine.curve;
    }
    const double shift = before * first;
    put_bias(before, old, shift, before - before * (before * second) - shift * shift,
             in.bias_damping, in.edge_precision[r.first + u], in.edge_pull[r.first + u]);
}

// Round a message, put it in the place of the old one and add it to the sums.
inline void put_message(
    const Messages& m, int64_t e, bool usable, const vec* message, int64_t n_vectors,
    int64_t* new_sums) {
    vec highest = all(-infinite);
    for (int64_t k = 0; k < m.n_levels; ++k) {
        const double mine = ((const double*)message)[k];
        highest[0] = mine > highest[0] ? mine : highest[0];
    }
    const double top = highest[0];
    int64_t *old = m.message + e * m.n_levels, *sums = new_sums + m.worker[e] * m.n_levels;
    for (int64_t i = 0; i < n_vectors; ++i) {
        vec x = usable ? max(message[i] - all(top), all(m.floor)) : all(0.0);
        if (m.damping != 0.0)
            x = all(1.0 - m.damping) * x +
                all(m.damping * m.quantum) * to_double(load_levels(old, i, m.n_levels));
        const ivec after = round_to_int(x * all(1.0 / m.quantum));
        if ((i + 1) * lanes <= m.n_levels) {
            *(loose_ivec*)(old + i * lanes) = after;
            *(loose_ivec*)(sums + i * lanes) += after;
            continue;
        }
        for (int lane = 0; i * lanes + lane < m.n_levels; ++lane) {
            old[i * lanes + lane] = after[lane];
            sums[i * lanes + lane] += after[lane];
        }
    }
}

// How far a truth moved, in whole steps and up to a limit: such sums are the same in any order, and
// over any parts of the rows.
inline double in_steps(double moved) {
    constexpr double step = 1.0 / (1 << 30), most = 16.0;
    return moved < most ? __builtin_rint(moved / step) * step : most;
}

static double match(
    const IntegralLaw& given, const MatchInputs& in, const Messages& m, const MatchFound& found,
    int64_t first_chunk, int64_t last_chunk, int64_t* new_sums, Workspace& workspace) {
    const Law law(given);
    const Tables t(law, workspace);
    MatchedRow r(t, in, m, in.most, workspace);
    ChunkCounts counts(t, workspace);
    vec* message = (vec*)workspace.slot(2, lanes * t.k_vectors);
    for (int64_t chunk = first_chunk; chunk < last_chunk; ++chunk) {
        counts.clear();
        double moved = 0.0;
        const int64_t end = (chunk + 1) * in.chunk < in.n_rows ? (chunk + 1) * in.chunk : in.n_rows;
        for (int64_t row = chunk * in.chunk; row < end; ++row) {
            if (in.sending != nullptr && !in.sending[row]) continue;
            r.open(row);
            for (int64_t u = 0; u < r.degree; ++u) {
                const bool usable = r.held[u].usable;
                say_level(r, t, u, message,
                          found.counts != nullptr && usable ? counts.pairs : nullptr);
                put_message(m, r.first + u, usable, message, t.k_vectors, new_sums);
                if (in.bias != nullptr) say_bias(r, u);
            }
            for (int64_t c = 0; c < law.C; ++c) {
                found.evidence[row * law.C + c] = r.evidence[c];
                counts.classes[c] += r.weight[c];
                if (law.J == 0) continue;
                // Shares of the prior's components, and x from the prior's mean.
                const Held held =
                    r.prior.hold(in.prior_mean[row], r.of_prior[c].others, r.prior_gauss);
                const double per_total = held.per_whole();
                for (int64_t j = 0; j < law.J; ++j) {
                    const double share = r.weight[c] * per_total * ((double*)r.prior_gauss)[j] *
                                         given.prior_weight[j];
                    counts.components[j] += share;
                    counts.precision += share / given.prior_variance[j];
                }
                counts.pull -= r.weight[c] * held.distance * held.slope;
            }
            moved += in_steps(r.renew());
        }
        found.moved[chunk] = moved;
        if (found.counts != nullptr) counts.write(found.counts + chunk * n_counts(given));
    }
    return 0.0;
}

// M93: each answer as predicted by all others of its row.
static void match_predict(
    const IntegralLaw& given, const MatchInputs& in, const Messages& m, const LeftOut& out,
    int64_t first_chunk, int64_t last_chunk, Workspace& workspace) {
    const Law law(given);
    const Tables t(law, workspace);
    MatchedRow r(t, in, m, in.most, workspace);
    const int64_t last = last_chunk * in.chunk < in.n_rows ? last_chunk * in.chunk : in.n_rows;
    for (int64_t row = first_chunk * in.chunk; row < last; ++row) {
        r.open(row);
        for (int64_t u = 0; u < r.degree; ++u) {
            double top = -infinite, whole = 0.0, density = 0.0;
            for (int64_t c = 0; c < law.C; ++c) {
                const double mine = r.log_without(c, u);
                top = mine > top ? mine : top;
            }
            double mean = 0.0, variance = 0.0, noise = 0.0, pit = 0.0, reach = -infinite;
            for (int64_t c = 0; c < law.C; ++c) {
                const Held& held = r.held[c * r.degree + u];
                reach = held.total() > reach ? held.total() : reach;
            }
            for (int64_t c = 0; c < law.C; ++c) {
                const Held& held = r.held[c * r.degree + u];
                const double share = __builtin_exp(r.log_without(c, u) - top);
                const double others = held.usable ? held.others.variance : 0.0;
                const double truth = r.centre[u] - held.distance;
                r.open_answer(c, u);
                vec below = all(0.0), wide = all(0.0);
                for (int64_t i = 0; i < t.g_vectors; ++i) {
                    wide = fma(r.answer.share[i], r.answer.variance[i], wide);
                    if (out.pit == nullptr) continue;
                    vec unused;
                    const vec z = all(held.distance) / sqrt(r.answer.variance[i] + all(others));
                    below = fma(r.answer.share[i], normal(z, unused), below);
                }
                whole += share, density += share * __builtin_exp(held.total() - reach);
                mean += share * truth, variance += share * others;
                pit += share * sum(below), noise += share * sum(wide);
            }
            mean /= whole;
            for (int64_t c = 0; c < law.C; ++c) {
                const double away = r.centre[u] - r.held[c * r.degree + u].distance - mean;
                variance += __builtin_exp(r.log_without(c, u) - top) * away * away;
            }
            variance /= whole;
            const double least = -700.0;
            const double log_density =
                reach + __builtin_log(density / whole) - 0.91893853320467274178;
            const int64_t at = r.first + u;
            out.log_density[at] = log_density > least ? log_density : least;
            if (out.pit != nullptr) out.pit[at] = pit / whole > 1.0 ? 1.0 : pit / whole;
            out.mean[at] = mean, out.truth_variance[at] = variance;
            out.bias[at] = in.value[at] - r.centre[u];
            out.variance[at] = out.truth_variance[at] + noise / whole;
        }
    }
}

}  // namespace voxpop::VOXPOP_VARIANT
