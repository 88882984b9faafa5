// Moment matching: each answer of a row as one Gaussian about it, so that no integral is left.
//
// The same as kernels/match.py. Lanes are answers, of as many rows as a batch has room for, or
// rows: all that a lane holds is its own, so that no answer depends on those beside it. Function u
// is averaged over the cavity distribution N(mean, others), with V_g = v_g + gamma_u + others and
// d = a_u - mean (M90):
//
//     Z = Σ_g share_g N(d | 0, V_g),  slope E[1/V],  curve E[1/V - d²/V²],
//     site = E[1/V] / E[(v + gamma)/V]
#pragma once

#include "matched.hpp"
#include "lanes.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Rounds in which sites are found before the first messages.
constexpr int first_rounds = 3;
// Least damping of sites where tasks have classes of difficulty.
constexpr double classes_damping = 0.3;
// Answers of a batch, unless a row has more: what is known of them stays in the cache.
constexpr int64_t batch_answers = 64;

// The mixing as lists of what is not zero: of class c and variance g from first[c * G + g] on.
struct Mixing {
    int64_t *first, *level;
    double* share;

    Mixing(const Law& law, Workspace& workspace) {
        const int64_t size = law.C * law.K * law.G;
        double* room = workspace.slot(0, 2 * size + law.C * law.G + 1);
        share = room, level = (int64_t*)(room + size), first = level + size;
        int64_t n = 0;
        for (int64_t c = 0; c < law.C; ++c)
            for (int64_t g = 0; g < law.G; ++g) {
                first[c * law.G + g] = n;
                for (int64_t k = 0; k < law.K; ++k)
                    if (law.mixing(c, k, g) != 0.0)
                        level[n] = k, share[n++] = law.mixing(c, k, g);
            }
        first[law.C * law.G] = n;
    }
};

// Some rows under all classes, their answers one after the other.
class MatchBatch {
public:
    const Law& law;
    const MatchInputs& in;
    const Messages& m;
    const Mixing& mixing;
    int64_t n = 0, blocks = 0, n_rows = 0, row_blocks = 0;
    int64_t *edge, *row, *begin;  // of each answer; of each row, and its first answer (rows + 1)
    vec *value, *centre, *spread;        // by answer
    vec *level;                          // (blocks, K), adding up to one
    vec *weight, *row_weight, *without;  // (C, blocks) or (C, row blocks): shares of classes
    Matched *matched, *of_prior;         // (C, blocks), (C, row blocks)
    vec *gauss, *prior_gauss;            // (C, blocks, G), (C, row blocks, J)
    vec* evidence;                       // (C, row blocks)
    vec* share;                          // (most of G and J): room for those of one block

    MatchBatch(const Law& law, const Mixing& mixing, const MatchInputs& in, const Messages& m,
               Workspace& workspace)
        : law(law), in(in), m(m), mixing(mixing),
          room_(vectors(in.most > batch_answers ? in.most : batch_answers)) {
        const int64_t C = law.C, per_matched = sizeof(Matched) / sizeof(vec), widest = law.G + law.J;
        const int64_t per_class = 8 + 2 * per_matched + law.G + law.J;
        vec* next = (vec*)workspace.slot(
            1, lanes * (room_ * (19 + law.K + C * per_class) + widest + 1));
        auto take = [&next](int64_t size) { return (next += size) - size; };
        edge = (int64_t*)take(room_), row = (int64_t*)take(room_);
        begin = (int64_t*)take(room_ + 1);
        value = take(room_), centre = take(room_), spread = take(room_);
        level = take(room_ * law.K);
        weight = take(C * room_), row_weight = take(C * room_), without = take(C * room_);
        matched = (Matched*)take(C * room_ * per_matched), of_prior = (Matched*)take(C * room_ * per_matched);
        gauss = take(C * room_ * law.G), prior_gauss = take(C * room_ * law.J);
        evidence = take(C * room_), share = take(widest);
        site_ = (double*)take(C * room_), prior_site_ = (double*)take(C * room_);
        known_ = take(room_), is_known_ = take(room_), row_known_ = take(room_);
        row_is_known_ = take(room_), fresh_ = take(room_), row_fresh_ = take(room_);
        prior_mean_ = take(room_), by_row_ = take(room_), by_answer_ = take(room_);
        precision_ = take(room_), pull_ = take(room_), all_precision_ = take(room_);
        all_pull_ = take(room_), total_ = take(C * room_), mean_ = take(C * room_);
        for (int64_t g = 0; g < law.G; ++g)
            widest_ = law.given.variance[g] > widest_ ? law.given.variance[g] : widest_;
        for (int64_t j = 0; j < law.J; ++j) {
            const double mine = law.given.prior_variance[j];
            widest_prior_ = mine > widest_prior_ ? mine : widest_prior_;
        }
    }

    // Take up as many rows, from `first` to before `last`, as there is room for; return the next.
    int64_t open(int64_t first, int64_t last) {
        n = n_rows = 0;
        for (; first < last; ++first) {
            if (in.sending != nullptr && !in.sending[first]) continue;
            const int64_t degree = in.ptr[first + 1] - in.ptr[first];
            if (n + degree > room_ * lanes) break;
            row[n_rows] = first, begin[n_rows++] = n;
            for (int64_t u = 0; u < degree; ++u) edge[n++] = in.ptr[first] + u;
        }
        begin[n_rows] = n, blocks = vectors(n), row_blocks = vectors(n_rows);
        if (n == 0) return first;
        for (int64_t i = n; i < blocks * lanes; ++i) edge[i] = edge[n - 1];
        for (int64_t i = n_rows; i < row_blocks * lanes; ++i) row[i] = row[n_rows - 1];
        read();
        for (int64_t b = 0; b < blocks; ++b) receive(b);
        for (int64_t c = 0; c < law.C; ++c) find(c);
        weigh();
        return first;
    }

    // Prefetch the sums of the workers of the next batch, old and new: where workers are many, no
    // cache holds these tables, and the rows needed are anywhere in them.
    [[gnu::always_inline]] void prefetch(int64_t first, int64_t last, const int64_t* new_sums) const {
        const int64_t begin = in.ptr[first], room = begin + room_ * lanes;
        const int64_t end = in.ptr[last] < room ? in.ptr[last] : room, width = m.n_levels;
        for (int64_t e = begin; e < end; ++e) {
            const int64_t at = m.worker[e] * width;
            for (int64_t k = 0; k < width + 7; k += 8) {
                const int64_t here = at + (k < width ? k : width - 1);
                __builtin_prefetch(m.sums + here, 0, 2), __builtin_prefetch(new_sums + here, 1, 2);
            }
        }
    }

    int in_block(int64_t b) const { return (int)(n - b * lanes < lanes ? n - b * lanes : lanes); }

    // Shares of the variances in the answers of a block.
    [[gnu::always_inline]] Scales scales(int64_t c, int64_t b) const {
        const vec* mine = level + b * law.K;
        for (int64_t g = 0; g < law.G; ++g) {
            const int64_t* of = mixing.first + c * law.G + g;
            vec found = all(0.0);
            for (int64_t i = of[0]; i < of[1]; ++i)
                found = fma(mine[mixing.level[i]], all(mixing.share[i]), found);
            share[g] = found;
        }
        return {law.G, law.given.variance, widest_, spread[b], share};
    }

    const Matched& answers(int64_t c, int64_t b) const { return matched[c * blocks + b]; }

    // Put the sites in place of the old ones, add up in steps how far that moves the truths.
    double renew() {
        double* moved = (double*)by_row_;
        const double damping =
            law.C > 1 && m.damping < classes_damping ? classes_damping : m.damping;
        for (int64_t i = 0; i < n_rows; ++i) moved[i] = 0.0;
        for (int64_t c = 0; c < law.C; ++c) {
            const double *site = sites(c), *prior = prior_sites(c);
            const double* before = (double*)(mean_ + c * row_blocks);
            const double* share = (double*)(row_weight + c * row_blocks);
            take_over(c, nullptr, nullptr, damping);
            for (int64_t i = 0; i < n; ++i) in.site[c * in.n_edges + edge[i]] = site[i];
            for (int64_t i = 0; i < n_rows; ++i) {
                double precision = prior[i], pull = precision * ((double*)prior_mean_)[i];
                for (int64_t u = begin[i]; u < begin[i + 1]; ++u)
                    precision += site[u], pull += site[u] * ((double*)centre)[u];
                const double by = pull / precision - before[i];
                if (((double*)row_is_known_)[i] == 0.0) moved[i] += share[i] * by * by * precision;
                if (law.J > 0) in.prior_site[c * in.n_rows + row[i]] = prior[i];
            }
        }
        double found = 0.0;
        for (int64_t i = 0; i < n_rows; ++i) found += in_steps(moved[i]);
        return found;
    }

private:
    double* sites(int64_t c) const { return site_ + c * blocks * lanes; }
    double* prior_sites(int64_t c) const { return prior_site_ + c * row_blocks * lanes; }

    const int64_t room_;
    double *site_, *prior_site_;
    vec *known_, *is_known_, *row_known_, *row_is_known_, *fresh_, *row_fresh_, *prior_mean_;
    vec *by_row_, *by_answer_;  // scratch
    vec *precision_, *pull_;          // of the others of each answer
    vec *all_precision_, *all_pull_;  // of all answers of each row
    vec *total_, *mean_;              // (C, row blocks): precision and mean of the truth
    double widest_ = 0.0, widest_prior_ = 0.0;

    // How far a truth moved, in whole steps and up to a limit: such sums are the same in any order,
    // and over any parts of the rows.
    static double in_steps(double moved) {
        constexpr double step = 1.0 / (1 << 30), most = 16.0;
        return moved < most ? __builtin_rint(moved / step) * step : most;
    }

    // Answers less the cavity means of their workers' biases, sites, priors and known truths.
    void read() {
        double *x = (double*)value, *before = (double*)precision_, *pull = (double*)pull_;
        for (int64_t i = 0; i < blocks * lanes; ++i) {
            const int64_t e = edge[i];
            x[i] = in.value[e];
            if (in.bias == nullptr) continue;
            const int32_t worker = m.worker[e];
            before[i] = in.bias_precision[worker] - in.edge_precision[e];
            pull[i] = in.bias[worker] * in.bias_precision[worker] - in.edge_pull[e];
        }
        for (int64_t b = 0; b < blocks; ++b) {
            centre[b] = value[b], spread[b] = all(0.0);
            if (in.bias == nullptr) continue;
            spread[b] = all(1.0) / max(precision_[b], all(1e-300));
            centre[b] = centre[b] - pull_[b] * spread[b];
        }
        for (int64_t i = 0; i < row_blocks * lanes; ++i) {
            const double known = in.known[row[i]];
            ((double*)row_known_)[i] = known == known ? known : 0.0;
            ((double*)row_is_known_)[i] = known == known ? 1.0 : 0.0;
            ((double*)prior_mean_)[i] = law.J > 0 ? in.prior_mean[row[i]] : 0.0;
        }
        spread_out(row_known_, known_), spread_out(row_is_known_, is_known_);
        for (int64_t c = 0; c < law.C; ++c) {
            double *site = sites(c), *prior = prior_sites(c);
            for (int64_t i = 0; i < blocks * lanes; ++i)
                site[i] = in.site[c * in.n_edges + edge[i]];
            for (int64_t i = 0; i < row_blocks * lanes; ++i)
                prior[i] = law.J > 0 ? in.prior_site[c * in.n_rows + row[i]] : 0.0;
        }
        // No messages go past the end.
        for (int64_t i = n; i < blocks * lanes; ++i)
            ((double*)precision_)[i] = ((double*)pull_)[i] = 0.0;
        for (int64_t i = n_rows; i < row_blocks * lanes; ++i) {
            ((double*)all_precision_)[i] = ((double*)all_pull_)[i] = 1.0;
            for (int64_t c = 0; c < law.C; ++c) {
                ((double*)(total_ + c * row_blocks))[i] = 1.0;
                ((double*)(mean_ + c * row_blocks))[i] = 0.0;
            }
        }
    }

    // Give each answer the number of its row.
    void spread_out(const vec* of_row, vec* to) const {
        for (int64_t i = 0; i < n_rows; ++i)
            for (int64_t u = begin[i]; u < begin[i + 1]; ++u)
                ((double*)to)[u] = ((const double*)of_row)[i];
        for (int64_t u = n; u < blocks * lanes; ++u) ((double*)to)[u] = 0.0;
    }

    // M4: the workers' beliefs about their levels without these answers, adding up to one.
    [[gnu::always_inline]] void receive(int64_t b) {
        vec* mine = level + b * law.K;
        vec top = all(-infinite), whole = all(0.0);
        for_few(law.K, [&](auto count, int64_t first) VOXPOP_INLINE {
            const int64_t *sums[lanes], *own[lanes];
            ivec sum[4], mine_alone[4];
            for (int lane = 0; lane < lanes; ++lane) {
                const int64_t e = edge[b * lanes + lane];
                sums[lane] = m.sums + m.worker[e] * law.K + first;
                own[lane] = m.message + e * law.K + first;
            }
            to_lanes<count.value>(sums, sum), to_lanes<count.value>(own, mine_alone);
            for (int k = 0; k < count.value; ++k) {
                const vec units = to_double(sum[k] - mine_alone[k]);
                mine[first + k] = fma(units, all(m.quantum), all(m.log_weights[first + k]));
                top = max(top, mine[first + k]);
            }
        });
        for (int64_t k = 0; k < law.K; ++k)
            whole = whole + (mine[k] = exp(max(mine[k] - top, all(-1e5))));
        const vec per_whole = all(1.0) / whole;
        for (int64_t k = 0; k < law.K; ++k) mine[k] = mine[k] * per_whole;
    }

    // Sites and cavities of a class.
    void find(int64_t c) {
        double *site = sites(c), *prior = prior_sites(c);
        bool any_fresh = false;
        double* row_fresh = (double*)row_fresh_;
        for (int64_t i = 0; i < row_blocks * lanes; ++i) row_fresh[i] = 0.0;
        for (int64_t i = 0; i < n_rows; ++i) {
            for (int64_t u = begin[i]; u < begin[i + 1]; ++u)
                if (site[u] == 0.0) row_fresh[i] = 1.0, any_fresh = true;
            if (law.J > 0 && prior[i] == 0.0) prior[i] = 1.0 / widest_prior_;
        }
        if (any_fresh) {
            spread_out(row_fresh_, fresh_);
            for (int64_t b = 0; b < blocks; ++b) {
                const Scales mine = scales(c, b);
                vec found = all(0.0), *here = (vec*)site + b;
                for (int64_t g = 0; g < law.G; ++g)
                    found = fma(mine.share[g], log(all(mine.variance[g]) + mine.spread), found);
                *here = where_above(*here, all(0.0), *here, exp(-found));
            }
            for (int round = 0; round < first_rounds; ++round) {
                match_all(c);
                take_over(c, fresh_, row_fresh_, 0.0);
            }
        }
        match_all(c);
    }

    void match_all(int64_t c) {
        const double *site = sites(c), *prior = prior_sites(c), *a = (double*)centre;
        double *precision = (double*)precision_, *pull = (double*)pull_;
        double* total = (double*)(total_ + c * row_blocks);
        double* mean = (double*)(mean_ + c * row_blocks);
        for (int64_t i = 0; i < n_rows; ++i) {
            double p = 0.0, q = 0.0;
            for (int64_t u = begin[i + 1] - 1; u >= begin[i]; --u) {
                precision[u] = p, pull[u] = q;
                p += site[u], q += site[u] * a[u];
            }
            ((double*)all_precision_)[i] = p, ((double*)all_pull_)[i] = q;
            p = prior[i], q = p * ((double*)prior_mean_)[i];
            for (int64_t u = begin[i]; u < begin[i + 1]; ++u) {
                precision[u] += p, pull[u] += q;
                p += site[u], q += site[u] * a[u];
            }
            total[i] = p, mean[i] = q / p;
        }
        for (int64_t b = 0; b < blocks; ++b) {
            vec others = all(1.0) / precision_[b], at = pull_[b] / precision_[b];
            others = where_above(is_known_[b], all(0.5), all(0.0), others);
            at = where_above(is_known_[b], all(0.5), known_[b], at);
            scales(c, b).match(matched[c * blocks + b], centre[b], at, others,
                              gauss + (c * blocks + b) * law.G);
        }
        for (int64_t b = 0; law.J > 0 && b < row_blocks; ++b) {
            vec others = all(1.0) / all_precision_[b], at = all_pull_[b] / all_precision_[b];
            others = where_above(row_is_known_[b], all(0.5), all(0.0), others);
            at = where_above(row_is_known_[b], all(0.5), row_known_[b], at);
            for (int64_t j = 0; j < law.J; ++j) share[j] = all(law.given.prior_weight[j]);
            const Scales mine{law.J, law.given.prior_variance, widest_prior_, all(0.0), share};
            mine.match(of_prior[c * row_blocks + b], prior_mean_[b], at, others,
                      prior_gauss + (c * row_blocks + b) * law.J);
        }
    }

    // Take over the precisions found; with masks, those of some answers and rows.
    void take_over(int64_t c, const vec* which, const vec* rows, double damping) {
        vec *site = (vec*)sites(c), *prior = (vec*)prior_sites(c);
        const vec kept = all(damping), taken = all(1.0 - damping);
        for (int64_t b = 0; b < blocks; ++b) {
            const Matched& mine = matched[c * blocks + b];
            const vec wanted = which == nullptr ? mine.usable : mine.usable * which[b];
            const vec next = kept * site[b] + taken * mine.precision;
            site[b] = where_above(wanted, all(0.5), next, site[b]);
        }
        for (int64_t b = 0; law.J > 0 && b < row_blocks; ++b) {
            const vec wanted = rows == nullptr ? all(1.0) : rows[b];
            const vec next = kept * prior[b] + taken * of_prior[c * row_blocks + b].precision;
            prior[b] = where_above(wanted, all(0.5), next, prior[b]);
        }
    }

    // M92: log of the density of all answers under each class, and the classes' probabilities.
    void weigh() {
        for (int64_t b = 0; b < row_blocks; ++b) evidence[b] = all(0.0), row_weight[b] = all(1.0);
        for (int64_t b = 0; b < blocks; ++b) weight[b] = all(1.0);
        if (law.C == 1) return;
        for (int64_t c = 0; c < law.C; ++c) gather_evidence(c);
        for (int64_t b = 0; b < row_blocks; ++b) {
            vec highest = all(-infinite), whole = all(0.0);
            for (int64_t c = 0; c < law.C; ++c)
                highest = max(highest, row_weight[c * row_blocks + b] = joint(c, b));
            for (int64_t c = 0; c < law.C; ++c) {
                vec& mine = row_weight[c * row_blocks + b];
                whole = whole + (mine = exp(mine - highest));
            }
            for (int64_t c = 0; c < law.C; ++c) {
                vec& mine = row_weight[c * row_blocks + b];
                mine = mine / whole;
            }
        }
        for (int64_t c = 0; c < law.C; ++c) {
            spread_out(row_weight + c * row_blocks, weight + c * blocks);
            for (int64_t b = 0; b < row_blocks; ++b) by_row_[b] = joint(c, b);
            spread_out(by_row_, without + c * blocks);
            for (int64_t b = 0; b < blocks; ++b)
                without[c * blocks + b] = without[c * blocks + b] - matched[c * blocks + b].total;
        }
    }

    vec joint(int64_t c, int64_t b) const {
        vec log_class;
        for (int lane = 0; lane < lanes; ++lane)
            log_class[lane] = in.log_class[row[b * lanes + lane] * law.C + c];
        return log_class + evidence[c * row_blocks + b];
    }

    void gather_evidence(int64_t c) {
        spread_out(mean_ + c * row_blocks, by_answer_);
        for (int64_t b = 0; b < blocks; ++b) {
            Matched& mine = matched[c * blocks + b];
            mine.find_total();
            const vec site = ((vec*)site_)[c * blocks + b], away = centre[b] - by_answer_[b];
            const vec open = mine.if_usable(mine.log_factor(site)) - all(0.5) * site * away * away;
            by_answer_[b] = where_above(is_known_[b], all(0.5), mine.total, open);
        }
        vec* found = evidence + c * row_blocks;
        for (int64_t i = 0; i < n_rows; ++i) {
            double sum = 0.0;
            for (int64_t u = begin[i]; u < begin[i + 1]; ++u) sum += ((double*)by_answer_)[u];
            ((double*)found)[i] = sum;
        }
        for (int64_t b = 0; b < row_blocks; ++b) {
            vec more = all(-0.5) * log(total_[c * row_blocks + b]);
            if (law.J > 0) {
                Matched& prior = of_prior[c * row_blocks + b];
                prior.find_total();
                const vec site = ((vec*)prior_site_)[c * row_blocks + b];
                const vec away = prior_mean_[b] - mean_[c * row_blocks + b];
                more = more + prior.log_factor(site) - all(0.5) * site * away * away;
            }
            found[b] = where_above(row_is_known_[b], all(0.5), found[b], found[b] + more);
        }
    }
};

}  // namespace voxpop::VOXPOP_VARIANT
