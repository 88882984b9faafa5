// The messages of a row to its workers about level and bias, and about its class and truth.

// Sums over the nodes of one answer; of a lane, then of its team.
struct AnswerSums {
    double integral[MOST_CLASSES * MOST_VARIANCES];  // ∫ cavity_uc N_ug dx, (C, G)
    double first, second;                            // moments of the bias (M31)
};

// M30, M31: the integrals of one answer, scaled so that the largest cavity is 1; also written to
// `integral`. The bias, given x and g a Gaussian, is mixed over both:
//
//     b | x, g ~ N(w (a_u - x), w v_g),   w = gamma_u / (v_g + gamma_u)
__device__ __forceinline__ void integrate_answer(
    const Functions& f, const Nodes& nodes, const Law& law, int u, AnswerSums& s,
    double* integral) {
    const double spread = f.spread[u];
    double scale = LOG_NOTHING, top = LOG_NOTHING;
    s.first = s.second = 0.0;
#pragma unroll
    for (int i = 0; i < N_CLASSES * N_VARIANCES; ++i) s.integral[i] = 0.0;
    Answer a;
    for (int q = lane_number(); q < nodes.n; q += LANES) {
        const double x = nodes.x[q], distance = f.centre[u] - x;
        a.open(f, law, u, x);
#pragma unroll
        for (int c = 0; c < N_CLASSES; ++c) {
            const double log_cavity = nodes.log_p[c * nodes.room + q] -
                                      log_answer(a, f, law, u, c, x) + f.log_class[c];
            top = fmax(top, log_cavity);
            if (log_cavity > scale + RESCALE) {
                const double factor = exp(scale - log_cavity);
                scale = log_cavity, s.first *= factor, s.second *= factor;
#pragma unroll
                for (int i = 0; i < N_CLASSES * N_VARIANCES; ++i) s.integral[i] *= factor;
            }
            const double cavity = exp(log_cavity - scale);
#pragma unroll
            for (int g = 0; g < N_VARIANCES; ++g)
                s.integral[c * N_VARIANCES + g] += cavity * a.gauss[g];
            if (spread > 0.0) {
                const double* share = f.share + (i64)c * f.M * f.L + u;
                double once = 0.0, twice = 0.0, own = 0.0;
#pragma unroll
                for (int g = 0; g < N_VARIANCES; ++g) {
                    const double weight = spread * 2.0 * f.rate[(i64)g * f.L + u];
                    const double part = share[(i64)g * f.L] * weight * a.gauss[g];
                    once += part, twice += part * weight, own += part * law.variance[g];
                }
                s.first += cavity * distance * once;
                s.second += cavity * (distance * distance * twice + own);
            }
        }
    }
    top = team_max(top);
    const double factor = exp(scale - top);
#pragma unroll
    for (int i = 0; i < N_CLASSES * N_VARIANCES; ++i)
        s.integral[i] = team_sum(s.integral[i] * factor);
    if (spread > 0.0) s.first = team_sum(s.first * factor), s.second = team_sum(s.second * factor);
    if (lane_number() == 0) {
#pragma unroll
        for (int i = 0; i < N_CLASSES * N_VARIANCES; ++i) integral[i] = s.integral[i];
    }
    team_sync();
}

// The message about the level in logs throughout, where levels do not explain the answer.
//
//     m(k) ∝ Σ_c p(c) Σ_g mixing[c, k, g] ∫ cavity_uc(x) N_ug(x) dx
__device__ __noinline__ void send_answer_in_logs(
    const Functions& f, Nodes& nodes, const Law& law, int u, double* integral, double* out) {
    for (int q = lane_number(); q < nodes.n; q += LANES)
        for (int c = 0; c < law.C; ++c) {
            Answer a;
            a.open(f, law, u, nodes.x[q]);
            nodes.scratch[c * nodes.room + q] =
                nodes.log_p[c * nodes.room + q] - log_answer(a, f, law, u, c, nodes.x[q]);
        }
    for (int c = 0; c < law.C; ++c)
        for (int g = 0; g < law.G; ++g) {
            const double rate = f.rate[(i64)g * f.L + u];
            double top = LOG_NOTHING, total = 0.0;
            for (int pass = 0; pass < 2; ++pass) {
                for (int q = lane_number(); q < nodes.n; q += LANES) {
                    const double d = f.centre[u] - nodes.x[q];
                    const double term = nodes.scratch[c * nodes.room + q] - rate * d * d;
                    if (pass == 0) top = fmax(top, term);
                    else total += exp(term - top);
                }
                if (pass == 0) top = team_max(top);
            }
            const double found = top + log(team_sum(total)) -
                                 0.5 * log(f.variance[(i64)g * f.L + u]) + f.log_class[c];
            if (lane_number() == 0) integral[c * law.G + g] = found;
        }
    team_sync();
    for (int k = 0; k < law.K; ++k) {
        double top = LOG_NOTHING, total = 0.0;
        for (int pass = 0; pass < 2; ++pass)
            for (int i = 0; i < law.C * law.G; ++i) {
                const double mixing = law.mixing[((i64)(i / law.G) * law.K + k) * law.G + i % law.G];
                if (!(mixing > 0.0)) continue;
                const double term = integral[i] + log(mixing);
                if (pass == 0) top = fmax(top, term);
                else total += exp(term - top);
            }
        if (lane_number() == 0) out[(i64)k * f.degree] = top + log(total);
    }
}

// Log m(k) from the integrals, which are overwritten. Where all levels underflow, or any does whose message
// counts down to the lowest, they are computed again in logs.
__device__ void send_answer(
    const Functions& f, Nodes& nodes, const Law& law, int u, double* integral, double* out) {
    double least = INFINITE, most = 0.0;
    for (int k = lane_number(); k < law.K; k += LANES) {
        double total = 0.0;
        for (int i = 0; i < law.C * law.G; ++i)
            total += integral[i] * law.mixing[((i64)(i / law.G) * law.K + k) * law.G + i % law.G];
        out[(i64)k * f.degree] = log(fmax(total, UNSAFE_SUM));
        least = fmin(least, total), most = fmax(most, total);
    }
    least = team_min(least), most = team_max(most);
    if (most < UNSAFE_SUM || (least < UNSAFE_SUM && law.lowest < -575.6462732485114))
        send_answer_in_logs(f, nodes, law, u, integral, out);
}

// M31: divide the belief about the bias with the answer by the belief without it.
__device__ void send_bias(
    const Functions& f, const Rows& rows, i64 edge, int u, const AnswerSums& s, double total,
    double damping) {
    // Where everything underflows, nothing is learned about the bias: it stays as it was.
    const bool lost = total < UNSAFE_SUM;
    const double before = f.spread[u], shift = lost ? 0.0 : s.first / total;
    const double variance = lost ? before : fmax(s.second / total - shift * shift, 0.0);
    put_bias(before, rows.value[edge] - f.centre[u], shift, variance, damping,
             rows.edge_precision[edge], rows.edge_pull[edge]);
}

// Log evidence for each class; where sums are wanted also the row's classes and prior components.
__device__ void weigh_classes(
    const Functions& f, Nodes& nodes, const Law& law, double* evidence, double* counts) {
    double top = LOG_NOTHING, whole = 0.0;
    double* mass = nodes.scratch + law.C * nodes.room;
    for (int c = 0; c < law.C; ++c)
        for (int q = lane_number(); q < nodes.n; q += LANES)
            top = fmax(top, nodes.log_p[c * nodes.room + q]);
    top = team_max(top);
    for (int c = 0; c < law.C; ++c) {
        double total = 0.0;
        for (int q = lane_number(); q < nodes.n; q += LANES) {
            nodes.scratch[c * nodes.room + q] = exp(nodes.log_p[c * nodes.room + q] - top);
            total += nodes.scratch[c * nodes.room + q];
        }
        total = team_sum(total);
        // Ten times the smallest number: log of nothing at all would be infinite.
        if (lane_number() == 0) evidence[c] = log(fmax(total, 1e-300));
        whole += total * exp(f.log_class[c]);
    }
    if (!counts) return;
    whole = fmax(whole, 1e-300);
    for (int q = lane_number(); q < nodes.n; q += LANES) mass[q] = 0.0;
    for (int c = 0; c < law.C; ++c) {
        const double factor = exp(f.log_class[c]) / whole;
        double total = 0.0;
        for (int q = lane_number(); q < nodes.n; q += LANES) {
            const double part = factor * nodes.scratch[c * nodes.room + q];
            total += part, mass[q] += part;
        }
        total = team_sum(total);
        if (lane_number() == 0) counts[c] += total;
    }
    double pull = 0.0, precision = 0.0;
    for (int j = 0; j < law.J; ++j) {
        const i64 at = (i64)j * f.L + f.degree;
        double total = 0.0, pulled = 0.0;
        for (int q = lane_number(); q < nodes.n; q += LANES) {
            const double away = nodes.x[q] - f.centre[f.degree];
            const double part =
                mass[q] * exp(f.height[at] - f.rate[at] * away * away - nodes.log_prior[q]);
            total += part, pulled += part * away;
        }
        total = team_sum(total);
        pull += team_sum(pulled) / law.prior_variance[j], precision += total / law.prior_variance[j];
        if (lane_number() == 0) counts[law.C + j] += total;
    }
    if (lane_number() == 0)
        counts[law.C + law.J] += pull, counts[law.C + law.J + 1] += precision;
}

// `counts` (n_teams, C K G + C + J + 2) or null gets the sums of each team.
extern "C" __global__ void integrate_sweep(
    LAW, ROWS, MESSAGES, double bias_damping, int room, double* workspace, double* evidence,
    double* counts, double* change) {
    TAKE_LAW TAKE_ROWS TAKE_MESSAGES
    Team team(law, degree, room, Aim::messages, workspace);
    Functions& f = team.f;
    const int n_pairs = law.C * law.K * law.G, n_counts = n_pairs + law.C + law.J + 2;
    if (counts) counts += team.number * n_counts;
    team.for_rows(law, rows, m, 1.0, [&](i64 row) {
        AnswerSums s;
        for (int u = 0; u < degree; ++u) {
            integrate_answer(f, team.nodes, law, u, s, team.integral);
            double total = 0.0;
            for (int i = 0; i < law.C * law.G; ++i)
                total += f.share[((i64)(i / law.G) * f.M + i % law.G) * f.L + u] * team.integral[i];
            if (counts && !(total < UNSAFE_SUM))
                for (int i = lane_number(); i < n_pairs; i += LANES) {
                    const int c = i / (law.K * law.G), k = i / law.G % law.K, g = i % law.G;
                    counts[i] += f.level[(i64)k * degree + u] * law.mixing[i] *
                                 (team.integral[c * law.G + g] / total);
                }
            if (rows.bias && lane_number() == 0)
                send_bias(f, rows, row * degree + u, u, s, total, bias_damping);
            send_answer(f, team.nodes, law, u, team.integral, team.out + u);
            team_sync();
        }
        weigh_classes(f, team.nodes, law, evidence + row * law.C, counts ? counts + n_pairs : counts);
        team_sync();
        double moved = 0.0;
        const double before = *change;
        for (int u = lane_number(); u < degree; u += LANES)
            moved = fmax(moved, send(m, row * degree + u, law.K, degree, team.out + u, before));
        raise_change(change, moved);
    });
}
