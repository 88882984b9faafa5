// Each answer as predicted by all others of its row.

// M32: density of the answer, probability of a lower one, moments of x given the others, and from
// these and the noise the variance of the answer. `out` is (6, n, degree).
//
//     density ∝ Σ_cg share_cg ∫ cavity_uc(x) N_ug(x) dx
//     PIT     ∝ Σ_cg share_cg ∫ cavity_uc(x) Φ((a_u - x) / sqrt(v_g + gamma_u)) dx
extern "C" __global__ void integrate_predict(
    LAW, ROWS, MESSAGES, int room, double* workspace, i64 size, int with_pit, double* out) {
    TAKE_LAW TAKE_ROWS TAKE_MESSAGES
    Team team(law, degree, room, Aim::predictions, workspace);
    const Functions& f = team.f;
    const Nodes& nodes = team.nodes;
    team.for_rows(law, rows, m, 1.0, [&](i64 row) {
        for (int u = 0; u < degree; ++u) {
            double top = LOG_NOTHING;
            Answer a;
            for (int q = lane_number(); q < nodes.n; q += LANES) {
                a.open(f, law, u, nodes.x[q]);
                for (int c = 0; c < N_CLASSES; ++c) {
                    const double found = nodes.log_p[c * room + q] -
                                         log_answer(a, f, law, u, c, nodes.x[q]) + f.log_class[c];
                    nodes.scratch[c * room + q] = found, top = fmax(top, found);
                }
            }
            top = team_max(top);
            double mass = 0.0, first = 0.0, second = 0.0, noise = 0.0, density = 0.0, below = 0.0;
            for (int q = lane_number(); q < nodes.n; q += LANES) {
                const double x = nodes.x[q], distance = f.centre[u] - x;
                a.open(f, law, u, x);
                for (int c = 0; c < N_CLASSES; ++c) {
                    const double cavity = exp(nodes.scratch[c * room + q] - top);
                    mass += cavity, first += cavity * x, second += cavity * x * x;
                    for (int g = 0; g < N_VARIANCES; ++g) {
                        const double part =
                            cavity * f.share[((i64)c * f.M + g) * f.L + u];
                        noise += part * f.variance[(i64)g * f.L + u];
                        density += part * a.gauss[g];
                        if (with_pit) below += part * normcdf(distance * f.per_sd[(i64)g * f.L + u]);
                    }
                }
            }
            mass = team_sum(mass), first = team_sum(first), second = team_sum(second);
            noise = team_sum(noise), density = team_sum(density), below = team_sum(below);
            if (lane_number() != 0) continue;
            // The workers' shares of the levels are known up to a factor.
            double whole = 0.0;
            for (int k = 0; k < law.K; ++k) whole += f.level[(i64)k * degree + u];
            const double mean = first / mass, spread = fmax(second / mass - mean * mean, 0.0);
            const i64 edge = row * degree + u;
            const double log_density = log(density / mass / whole) - 0.91893853320467274178;
            out[edge] = fmax(log_density, log(UNSAFE_SUM));
            out[size + edge] = fmin(fmax(below / mass / whole, 0.0), 1.0);
            out[2 * size + edge] = mean, out[3 * size + edge] = spread;
            out[4 * size + edge] = rows.value[edge] - f.centre[u];
            out[5 * size + edge] = spread + noise / mass / whole;
        }
    });
}
