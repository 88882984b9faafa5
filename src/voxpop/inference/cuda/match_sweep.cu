// The messages of a row to its workers about level and bias, with moments matched, and counts.

// Count the answers of a row at every class, level and variance.
__device__ void count_pairs(MatchTeam& t, double* counts) {
    const Law& law = t.law;
    for (int c = 0; c < law.C; ++c) {
        for (int u = lane_number(); u < t.degree; u += LANES) {
            const Matched& matched = t.matched[c * t.L + u];
            open_gauss(t, c, u, matched.reach);
            for (int g = 0; g < law.G; ++g) {
                double& mine = t.gauss[(i64)g * t.L + u];
                const bool counts_here = matched.usable() && t.share(c, u, g) > UNSAFE_SHARE;
                mine = counts_here ? t.weight[c] * mine / matched.whole : 0.0;
            }
        }
        team_sync();
        for (int i = lane_number(); i < law.K * law.G; i += LANES) {
            const int k = i / law.G, g = i % law.G;
            const i64 at = (i64)c * law.K * law.G + i;
            if (!(law.mixing[at] > 0.0)) continue;
            double total = 0.0;
            for (int u = 0; u < t.degree; ++u)
                total += t.level[(i64)k * t.L + u] * t.gauss[(i64)g * t.L + u];
            counts[at] += total * law.mixing[at];
        }
        team_sync();
    }
}

// Count the classes of a row, the shares of the prior's components, and x from the prior's mean.
__device__ void count_row(const MatchTeam& t, double* counts) {
    const Law& law = t.law;
    double* components = counts + law.C;
    for (int c = 0; c < law.C; ++c) {
        counts[c] += t.weight[c];
        if (law.J == 0) continue;
        const Matched& matched = t.matched[c * t.L + t.degree];
        for (int j = 0; j < law.J; ++j) {
            const double per_wide = 1.0 / (law.prior_variance[j] + matched.more());
            const double gauss = exp(exponent(matched.half(), per_wide) - matched.reach) * sqrt(per_wide);
            const double share = t.weight[c] * law.prior_weight[j] * gauss / matched.whole;
            components[j] += share, components[law.J + 1] += share / law.prior_variance[j];
        }
        components[law.J] -= t.weight[c] * matched.distance * matched.slope;
    }
}

// The message about the level of an answer, in the place of the level's shares (M91):
//
//     m(k) ∝ Σ_c p(c) Σ_g mixing[c, k, g] N_g
//
// in logs; in logs throughout if so asked. Returns whether levels have underflown that are kept.
__device__ bool send_level(MatchTeam& t, int u, bool in_logs) {
    const Law& law = t.law;
    const i64 L = t.L;
    double reach = LOG_NOTHING, least = INFINITE, most = 0.0;
    for (int c = 0; c < law.C; ++c) {
        const Matched& matched = t.matched[c * L + u];
        const double wide = t.widest + t.spread[u] + matched.more();
        reach = fmax(reach, t.log_without(c, u) + exponent(matched.half(), 1.0 / wide));
    }
    for (int c = 0; c < law.C; ++c) {
        const Matched& matched = t.matched[c * L + u];
        const double below = reach - t.log_without(c, u);
        if (!in_logs) open_gauss(t, c, u, below);
        for (int k = 0; k < law.K; ++k) {
            const double* mixing = law.mixing + ((i64)c * law.K + k) * law.G;
            double& mine = t.level[k * L + u];
            double total = c > 0 ? mine : in_logs ? LOG_NOTHING : 0.0;
            for (int g = 0; g < law.G; ++g) {
                if (!(mixing[g] > 0.0)) continue;
                if (!in_logs) {
                    total += mixing[g] * t.gauss[g * L + u];
                    continue;
                }
                const double wide = t.variance(u, g) + matched.more();
                const double term = exponent(matched.half(), 1.0 / wide) - below - 0.5 * log(wide) +
                                    log(mixing[g]);
                const double high = fmax(total, term), low = fmin(total, term);
                total = high + log1p(exp(low - high));
            }
            mine = total;
        }
    }
    if (in_logs) return false;
    for (int k = 0; k < law.K; ++k) {
        double& mine = t.level[k * L + u];
        least = fmin(least, mine), most = fmax(most, mine);
        mine = log(fmax(mine, UNSAFE_SHARE));
    }
    // What underflows is cut off by the floor, unless all levels are far down.
    return least < UNSAFE_SHARE && LOG_UNSAFE_SHARE - log(most) > law.lowest;
}

// M31 with the mean and variance of the truth given the others: the message about a bias.
__device__ void send_bias(const MatchTeam& t, int u) {
    const i64 edge = t.first + u;
    const double before = t.spread[u];
    double slope = 0.0, curve = 0.0;
    for (int c = 0; c < t.law.C; ++c) {
        const Matched& matched = t.matched[c * t.L + u];
        if (!matched.usable()) continue;
        slope += t.weight[c] * matched.distance * matched.slope, curve += t.weight[c] * matched.curve;
    }
    const double shift = before * slope;
    put_bias(before, t.rows.value[edge] - t.centre[u], shift,
             before - before * (before * curve) - shift * shift, t.rows.bias_damping,
             t.rows.edge_precision[edge], t.rows.edge_pull[edge]);
}

// How far a truth moved, in whole steps and up to a limit: such sums are the same in any order.
__device__ double in_steps(double moved) {
    const double step = 1.0 / (1 << 30), most = 16.0;
    return moved < most ? rint(moved / step) * step : most;
}

// `moved` (n_teams,) gets the sum of each team's squared moves, in steps;
// `counts` (n_teams, C K G + C + J + 2) or null what learning needs; `new_sums` or null the messages.
extern "C" __global__ void match_sweep(
    LAW, MATCH_ROWS, MESSAGES, double* workspace, double* found_evidence, double* counts,
    double* moved, i64* new_sums) {
    TAKE_LAW TAKE_MATCH_ROWS TAKE_MESSAGES
    MatchTeam t(law, rows, m, workspace);
    const i64 n_pairs = (i64)law.C * law.K * law.G;
    if (counts) counts += t.number * (n_pairs + law.C + law.J + 2);
    double by = 0.0;
    for (i64 row = t.number; row < n_rows; row += t.n_teams) {
        if (sending && !sending[row]) continue;
        t.open(row);
        if (counts) {
            count_pairs(t, counts);
            if (lane_number() == 0) count_row(t, counts + n_pairs);
        }
        for (int u = lane_number(); u < t.degree; u += LANES) {
            if (!t.matched[u].usable())
                for (int k = 0; k < law.K; ++k) t.level[(i64)k * t.L + u] = 0.0;
            else if (send_level(t, u, false))
                send_level(t, u, true);
            if (bias) send_bias(t, u);
            const i64 edge = t.first + u;
            send(m, edge, law.K, t.L, t.level + u, INFINITE);
            for (int k = 0; k < law.K && new_sums; ++k)
                atomicAdd((u64*)new_sums + (i64)worker[edge] * law.K + k,
                          (u64)message[edge * law.K + k]);
        }
        if (found_evidence && lane_number() == 0)
            for (int c = 0; c < law.C; ++c) found_evidence[row * law.C + c] = t.evidence[c];
        by += in_steps(t.renew());
        team_sync();
    }
    if (lane_number() == 0) moved[t.number] = by;
}
