// Moment matching: each answer of a row as one Gaussian about it; see kernels/match.py.
//
// A team a row of any degree; lanes are answers, and the prior where there is one. Function u is
// averaged over the cavity distribution N(mean, others), with V_g = v_g + gamma_u + others and
// d = a_u - mean (M90):
//
//     Z = Σ_g share_g N(d | 0, V_g),  slope E[1/V],  curve E[1/V - d²/V²],
//     site = E[1/V] / E[(v + gamma)/V]

// Rounds in which sites are found before the first messages.
#define FIRST_ROUNDS 3
// Least damping of sites where tasks have classes of difficulty.
#define CLASSES_DAMPING 0.3
// Linear sums below this may have lost terms to underflow.
#define UNSAFE_PART 1e-200
// Shares below this are not counted, and messages below this are computed in logs.
#define UNSAFE_SHARE 1e-290
#define LOG_UNSAFE_SHARE -667.7496769682733

// Rows of any degree (MatchInputs), at most `most`; without bias its pointers are null, and without
// `sending` all rows send.
struct MatchRows {
    i64 n, n_edges, most;
    const i64* ptr;
    const double *value, *prior_mean, *known, *log_class;
    double *site, *prior_site;  // (C, n_edges), (C, n)
    const double *bias, *bias_precision;
    double *edge_precision, *edge_pull;
    double bias_damping;
    const unsigned char* sending;
};

// The exponent of a Gaussian, with half = -d²/2 and per_wide = 1/V. Rounded by itself: the largest of
// them is subtracted from the others, and from itself must leave exactly 0, even at 1e10.
__device__ __forceinline__ double exponent(double half, double per_wide) {
    return __dmul_rn(half, per_wide);
}

// A function averaged over the cavity distribution; `others` is infinite without other answers. Z is
// `whole` times exp(reach), and `total` its log.
struct Matched {
    double distance, others, reach, whole, total, slope, curve, precision;

    __device__ __forceinline__ bool usable() const { return others < INFINITE; }
    __device__ __forceinline__ double more() const { return usable() ? others : 0.0; }
    __device__ __forceinline__ double half() const { return -0.5 * distance * distance; }

    // Log of the height of a site: with it the Gaussian has the density that the mixture has.
    __device__ __forceinline__ double log_factor(double site) const {
        const double wider = 1.0 + more() * site;
        return total + 0.5 * log(wider) + 0.5 * distance * distance * site / wider;
    }
};

// Mean and variance of a row's truth.
struct Truth {
    double mean, variance;
};

// Numbers that a team needs, with room for L functions; gpu_match.py has the same.
__device__ __forceinline__ i64 match_size(const Law& law, i64 L) {
    return L * (4 + law.K + law.G + 8 * law.C) + 2 * law.C;
}

// The team of a thread, and the row that it is at. Function u is the fastest index.
struct MatchTeam {
    const Law& law;
    const MatchRows& rows;
    const Messages& m;
    i64 number, n_teams, row, first;
    int degree, L;
    bool known;
    double widest, widest_prior;
    double *centre, *spread;              // (L)
    double *precision, *pull;             // (L): of all others
    double *level, *gauss;                // (K, L), (G, L)
    Matched* matched;                     // (C, L)
    double *evidence, *weight;            // (C): log evidence, and probability of each class

    __device__ MatchTeam(const Law& law, const MatchRows& rows, const Messages& m, double* workspace)
        : law(law), rows(rows), m(m), row(0), first(0), degree(0), L(0), known(false), widest(0.0),
          widest_prior(0.0) {
        number = thread_number() / LANES, n_teams = (i64)gridDim.x * blockDim.x / LANES;
        const i64 room = rows.most + (law.J > 0);
        double* next = workspace + number * match_size(law, room);
        centre = carve(next, room), spread = carve(next, room);
        precision = carve(next, room), pull = carve(next, room);
        level = carve(next, law.K * room), gauss = carve(next, law.G * room);
        matched = (Matched*)carve(next, 8 * law.C * room);
        evidence = carve(next, law.C), weight = next;
        for (int g = 0; g < law.G; ++g) widest = fmax(widest, law.variance[g]);
        for (int j = 0; j < law.J; ++j) widest_prior = fmax(widest_prior, law.prior_variance[j]);
    }

    __device__ __forceinline__ bool is_prior(int u) const { return u == degree; }
    __device__ __forceinline__ double& site(int c, int u) const {
        return is_prior(u) ? rows.prior_site[c * rows.n + row]
                           : rows.site[c * rows.n_edges + first + u];
    }
    __device__ __forceinline__ double variance(int u, int g) const {
        return is_prior(u) ? law.prior_variance[g] : law.variance[g] + spread[u];
    }
    __device__ __forceinline__ int components(int u) const { return is_prior(u) ? law.J : law.G; }
    __device__ __forceinline__ double share(int c, int u, int g) const {
        if (is_prior(u)) return law.prior_weight[g];
        const double* mixing = law.mixing + (i64)c * law.K * law.G + g;
        double found = 0.0;
        for (int k = 0; k < law.K; ++k)
            if (mixing[(i64)k * law.G] > 0.0) found += level[(i64)k * L + u] * mixing[(i64)k * law.G];
        return found;
    }

    // Take up a row: answers less what is believed of their workers' biases, and shares of levels.
    __device__ void open(i64 number_of_row) {
        row = number_of_row, first = rows.ptr[row], degree = (int)(rows.ptr[row + 1] - first);
        L = degree + (law.J > 0), known = isfinite(rows.known[row]);
        for (int u = lane_number(); u < degree; u += LANES) {
            const i64 edge = first + u;
            receive(m, edge, law.K, L, level + u);
            double whole = 0.0;
            for (int k = 0; k < law.K; ++k)
                whole += level[(i64)k * L + u] = exp(level[(i64)k * L + u]);
            for (int k = 0; k < law.K; ++k) level[(i64)k * L + u] /= whole;
            centre[u] = rows.value[edge], spread[u] = 0.0;
            if (rows.bias) {
                const int worker = m.worker[edge];
                const double sure = rows.bias_precision[worker] - rows.edge_precision[edge];
                const double mean =
                    rows.bias[worker] * rows.bias_precision[worker] - rows.edge_pull[edge];
                spread[u] = 1.0 / fmax(sure, 1e-300);
                centre[u] -= mean * spread[u];
            }
        }
        if (law.J > 0 && lane_number() == 0) {
            centre[degree] = rows.prior_mean[row], spread[degree] = 0.0;
            for (int c = 0; c < law.C; ++c)
                if (site(c, degree) == 0.0) site(c, degree) = 1.0 / widest_prior;
        }
        team_sync();
        for (int c = 0; c < law.C; ++c) find(c);
        weigh();
    }

    // Sites and cavities of a class.
    __device__ void find(int c) {
        double fresh = 0.0;
        for (int u = lane_number(); u < degree; u += LANES)
            if (site(c, u) == 0.0) {
                double total = 0.0;
                for (int g = 0; g < law.G; ++g) total += share(c, u, g) * log(variance(u, g));
                site(c, u) = exp(-total), fresh = 1.0;
            }
        fresh = team_max(fresh);
        team_sync();
        for (int round = 0; fresh > 0.0 && round < FIRST_ROUNDS; ++round)
            match_all(c), take_over(c, 0.0);
        match_all(c);
    }

    // Match every function of a class, given the others: sums over these, without subtracting.
    __device__ void match_all(int c) {
        if (lane_number() == 0) {
            double sure = 0.0, mean = 0.0;
            for (int u = degree - 1; u >= 0; --u) {
                precision[u] = sure, pull[u] = mean;
                sure += site(c, u), mean += site(c, u) * centre[u];
            }
            if (law.J > 0) precision[degree] = sure, pull[degree] = mean;
            sure = law.J > 0 ? site(c, degree) : 0.0;
            mean = law.J > 0 ? sure * centre[degree] : 0.0;
            for (int u = 0; u < degree; ++u) {
                precision[u] += sure, pull[u] += mean;
                sure += site(c, u), mean += site(c, u) * centre[u];
            }
        }
        team_sync();
        for (int u = lane_number(); u < L; u += LANES) matched[c * L + u] = match(c, u);
        team_sync();
    }

    __device__ Matched match(int c, int u) const {
        Matched found;
        found.others = known ? 0.0 : precision[u] > 0.0 ? 1.0 / precision[u] : INFINITE;
        const double mean = known ? rows.known[row] : pull[u] / precision[u];
        found.distance = found.usable() ? centre[u] - mean : 0.0;
        const double half = found.half(), more = found.more();
        const double most = is_prior(u) ? widest_prior : widest + spread[u];
        found.reach = exponent(half, 1.0 / (most + more));
        sum_parts(c, u, found);
        if (!(found.whole > UNSAFE_PART)) {
            // Components with a share are far below those without: sums are on their scale.
            found.reach = LOG_NOTHING;
            for (int g = 0; g < components(u); ++g)
                if (share(c, u, g) > 0.0)
                    found.reach =
                        fmax(found.reach, exponent(half, 1.0 / (variance(u, g) + more)));
            sum_parts(c, u, found);
        }
        found.total = found.usable() ? found.reach + log(found.whole) : 0.0;
        return found;
    }

    __device__ void sum_parts(int c, int u, Matched& found) const {
        const double half = found.half(), more = found.more();
        double whole = 0.0, slope = 0.0, curve = 0.0, narrow = 0.0;
        for (int g = 0; g < components(u); ++g) {
            const double mine = share(c, u, g), v = variance(u, g), per_wide = 1.0 / (v + more);
            if (!(mine > 0.0)) continue;
            const double part =
                mine * exp(fmin(exponent(half, per_wide) - found.reach, 0.0)) * sqrt(per_wide);
            whole += part, slope += part * per_wide;
            // Without squares of precisions, which may overflow.
            curve += part * per_wide * (1.0 + 2.0 * half * per_wide);
            narrow += part * per_wide * v;
        }
        found.whole = whole, found.slope = slope / whole, found.curve = curve / whole;
        found.precision = slope / narrow;
    }

    __device__ void take_over(int c, double damping) {
        for (int u = lane_number(); u < L; u += LANES) {
            const Matched& found = matched[c * L + u];
            double& mine = site(c, u);
            if (found.usable()) mine = damping * mine + (1.0 - damping) * found.precision;
        }
        team_sync();
    }

    // Mean and variance of the truth, from all sites.
    __device__ Truth truth(int c) const {
        double sure = 0.0, mean = 0.0;
        for (int u = lane_number(); u < L; u += LANES)
            sure += site(c, u), mean += site(c, u) * centre[u];
        sure = team_sum(sure), mean = team_sum(mean);
        return {mean / sure, 1.0 / sure};
    }

    // M92: log of the density of all answers under each class, and the classes' probabilities.
    __device__ void weigh() {
        double top = LOG_NOTHING, whole = 0.0;
        for (int c = 0; c < law.C; ++c) {
            double found = 0.0;
            if (law.C > 1) {
                const Truth x = truth(c);
                for (int u = lane_number(); u < L; u += LANES) {
                    const Matched& mine = matched[c * L + u];
                    const double away = centre[u] - x.mean;
                    if (known) found += is_prior(u) ? 0.0 : mine.total;
                    else found += (mine.usable() ? mine.log_factor(site(c, u)) : 0.0) -
                                  0.5 * site(c, u) * away * away;
                }
                found = team_sum(found) + (known ? 0.0 : 0.5 * log(x.variance));
            }
            top = fmax(top, rows.log_class[row * law.C + c] + found);
            if (lane_number() == 0) evidence[c] = found;
        }
        team_sync();
        for (int c = 0; c < law.C; ++c)
            whole += exp(rows.log_class[row * law.C + c] + evidence[c] - top);
        if (lane_number() == 0)
            for (int c = 0; c < law.C; ++c)
                weight[c] = exp(rows.log_class[row * law.C + c] + evidence[c] - top) / whole;
        team_sync();
    }

    // Log of the probability of a class without the evidence of an answer, up to a constant.
    __device__ __forceinline__ double log_without(int c, int u) const {
        return law.C == 1 ? 0.0
                          : rows.log_class[row * law.C + c] + evidence[c] - matched[c * L + u].total;
    }

    // Put the sites in place of the old ones; return how far that moves the truth, in sds, squared.
    __device__ double renew() {
        const double damping = law.C > 1 ? fmax(m.damping, CLASSES_DAMPING) : m.damping;
        double moved = 0.0;
        for (int c = 0; c < law.C; ++c) {
            const Truth before = truth(c);
            team_sync();
            take_over(c, damping);
            const Truth after = truth(c);
            const double by = after.mean - before.mean;
            if (!known) moved += weight[c] * by * by / after.variance;
        }
        return moved;
    }
};

// The Gaussians of an answer, times exp(-reach).
__device__ __forceinline__ void open_gauss(MatchTeam& t, int c, int u, double reach) {
    const Matched& matched = t.matched[c * t.L + u];
    for (int g = 0; g < t.law.G; ++g) {
        const double per_wide = 1.0 / (t.variance(u, g) + matched.more());
        t.gauss[(i64)g * t.L + u] = exp(exponent(matched.half(), per_wide) - reach) * sqrt(per_wide);
    }
}

#define MATCH_ROWS i64 n_rows, i64 n_edges, i64 most, const i64 *ptr, const double *value, \
                   const double *prior_mean, const double *known, const double *log_class, \
                   double *site, double *prior_site, const double *bias, \
                   const double *bias_precision, double *edge_precision, double *edge_pull, \
                   double bias_damping, const unsigned char *sending
#define TAKE_MATCH_ROWS const MatchRows rows{n_rows, n_edges, most, ptr, value, prior_mean, known, \
                                             log_class, site, prior_site, bias, bias_precision, \
                                             edge_precision, edge_pull, bias_damping, sending};
