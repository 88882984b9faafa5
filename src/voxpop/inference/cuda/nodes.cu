// Where to integrate over a truth; see kernels/nodes.py. A team a row; here lanes are functions.

// The same as in nodes.py, where they are explained.
#define MOST_WIDE_NODES 6000.0
#define MOST_EVEN_NODES 128.0
#define MOST_RULED_OUT 1e4
#define MOST_DRAWN 225.0
#define UNHEARD 50.0
#define BOUND_REACH 3.0
#define NEAREST 1e-5
#define BELOW 11
#define ABOVE 12
#define POINTS (BELOW + 1 + ABOVE)
#define APART 2.0
#define FEW_NODES 64.0
#define MANY_NODES 512.0
#define PEEL 1.25
#define MOST_SCANS 12
#define SEARCH 3
// Shares below this may have lost terms to underflow; their largest term then stands for them.
#define UNSAFE_SHARE 1e-290

// What is integrated on the nodes, and so where they have to be; see nodes.py.
enum class Aim { messages, predictions, posterior };

// The functions of a row: those of its answers, then the prior. Function u is the fastest index.
//
//     F_u(x) = Σ_g exp(height_g - rate_g (x - centre_u)²)                                 (M12)
struct Functions {
    int degree, L, M;        // answers, functions, room for the components of one
    Aim aim;
    double *centre, *spread; // (L), (degree)
    double *variance, *rate, *per_sd;  // (M, L): v_g + gamma_u, 1 / (2 variance), 1 / sd
    double *share, *height;  // (C, M, L): of the variances; log of share / sqrt(variance)
    double *incoming, *level;  // (K, degree): log messages of the workers, and linear
    const double* log_class;   // (C)
    // The components of each function that matter, (L), and its mean precision there, (C, L).
    double *narrow, *fine, *wide, *behind, *widest, *ruled_out, *peak;
    // W(x) is made of peaks height / (1 + decay (x - centre)²): two of every function, (L), and one
    // at the mean of all and of all others than u, (L + 1).
    double *drop, *decay, *own_drop, *own_decay, *far_centre;
    double far_height, far_decay, flattest;
    // Of a scan: (C, POINTS, L), (C, POINTS), (C, POINTS), (G, degree + 1).
    double *log_f, *total, *bend, *top;
};

// How many numbers the functions of a row take.
__host__ __device__ inline i64 functions_size(const Law& law, i64 degree) {
    const i64 L = degree + (law.J > 0), M = law.G > law.J ? law.G : law.J;
    return 12 * L + 1 + degree + (3 + 2 * law.C) * M * L + 2 * law.K * degree + law.C * L +
           law.C * POINTS * (L + 2) + law.G * (degree + 1);
}

__device__ __noinline__ void carve_functions(Functions& f, const Law& law, double* next) {
    const i64 L = f.L, n = (i64)f.M * L;
    f.centre = carve(next, L), f.spread = carve(next, f.degree);
    f.variance = carve(next, n), f.rate = carve(next, n), f.per_sd = carve(next, n);
    f.share = carve(next, law.C * n), f.height = carve(next, law.C * n);
    f.incoming = carve(next, (i64)law.K * f.degree), f.level = carve(next, (i64)law.K * f.degree);
    f.narrow = carve(next, L), f.fine = carve(next, L), f.wide = carve(next, L);
    f.behind = carve(next, L), f.widest = carve(next, L), f.ruled_out = carve(next, L);
    f.peak = carve(next, law.C * L);
    f.drop = carve(next, L), f.decay = carve(next, L), f.own_drop = carve(next, L);
    f.own_decay = carve(next, L), f.far_centre = carve(next, L + 1);
    f.log_f = carve(next, law.C * POINTS * L), f.total = carve(next, law.C * POINTS);
    f.bend = carve(next, law.C * POINTS), f.top = carve(next, (i64)law.G * (f.degree + 1));
}

// The narrowest components that can matter: only messages are about some that have no weight.
__device__ __forceinline__ const double* narrowest(const Functions& f) {
    return f.aim == Aim::messages ? f.narrow : f.fine;
}

__device__ __forceinline__ int components(const Functions& f, const Law& law, int u) {
    return u < f.degree ? law.G : law.J;
}

// Highest of a component over the classes.
__device__ __forceinline__ double highest(const Functions& f, const Law& law, int u, int g) {
    double found = LOG_NOTHING;
#pragma unroll 1
    for (int c = 0; c < law.C; ++c) found = fmax(found, f.height[((i64)c * f.M + g) * f.L + u]);
    return found;
}

// Variance, shares and heights of an answer whose messages, centre and spread are known.
__device__ __noinline__ void open_answer(Functions& f, const Law& law, int u) {
#pragma unroll 1
    for (int k = 0; k < law.K; ++k)
        f.level[(i64)k * f.degree + u] = exp(f.incoming[(i64)k * f.degree + u]);
#pragma unroll 1
    for (int g = 0; g < law.G; ++g) {
        const double v = law.variance[g] + f.spread[u];
        f.variance[(i64)g * f.L + u] = v, f.rate[(i64)g * f.L + u] = 0.5 / v;
        f.per_sd[(i64)g * f.L + u] = 1.0 / sqrt(v);
#pragma unroll 1
        for (int c = 0; c < law.C; ++c) {
            const double* mixing = law.mixing + (i64)c * law.K * law.G + g;
            double share = 0.0;
#pragma unroll 1
            for (int k = 0; k < law.K; ++k)
                share += f.level[(i64)k * f.degree + u] * mixing[k * law.G];
            double log_share = log(share);
            if (share < UNSAFE_SHARE) {
                log_share = LOG_NOTHING;
#pragma unroll 1
                for (int k = 0; k < law.K; ++k)
                    if (mixing[k * law.G] > 0.0)
                        log_share = fmax(log_share, f.incoming[(i64)k * f.degree + u] +
                                                        log(mixing[k * law.G]));
            }
            const i64 at = ((i64)c * f.M + g) * f.L + u;
            f.share[at] = share, f.height[at] = log_share - 0.5 * log(v);
        }
    }
}

__device__ __noinline__ void open_prior(Functions& f, const Law& law, double mean) {
    const int u = f.degree;
    f.centre[u] = mean;
#pragma unroll 1
    for (int j = 0; j < law.J; ++j) {
        const double v = law.prior_variance[j], weight = law.prior_weight[j];
        f.variance[(i64)j * f.L + u] = v, f.rate[(i64)j * f.L + u] = 0.5 / v;
#pragma unroll 1
        for (int c = 0; c < law.C; ++c) {
            const i64 at = ((i64)c * f.M + j) * f.L + u;
            f.share[at] = weight;
            f.height[at] = (weight > 0.0 ? log(weight) : LOG_NOTHING) - 0.5 * log(v);
        }
    }
}

// f_u and w_u, how far w_u and the widest component are behind the likeliest, in nats, and the mean
// precision at the centre.
__device__ __noinline__ void find_credible(Functions& f, const Law& law, int u, double spare) {
    const int n = components(f, law, u);
    double best = LOG_NOTHING;
#pragma unroll 1
    for (int g = 0; g < n; ++g) best = fmax(best, highest(f, law, u, g));
    double narrow = INFINITE, fine = INFINITE, wide = 0.0, widest = 0.0;
    double of_wide = best, of_widest = best;
#pragma unroll 1
    for (int g = 0; g < n; ++g) {
        const double mine = highest(f, law, u, g), v = f.variance[(i64)g * f.L + u];
        narrow = fmin(narrow, v);
        if (mine >= best - spare - 3.0) fine = fmin(fine, v);
        if (mine >= best - 2.0 * spare && v > wide) wide = v, of_wide = mine;
        if (v > widest) widest = v, of_widest = mine;
    }
    f.narrow[u] = narrow, f.fine[u] = fine, f.wide[u] = wide, f.behind[u] = best - of_wide;
    f.widest[u] = widest, f.ruled_out[u] = best - of_widest;
#pragma unroll 1
    for (int c = 0; c < law.C; ++c) {
        const double* height = f.height + (i64)c * f.M * f.L + u;
        double top = LOG_NOTHING, sum = 0.0, total = 0.0;
#pragma unroll 1
        for (int g = 0; g < n; ++g) top = fmax(top, height[(i64)g * f.L]);
#pragma unroll 1
        for (int g = 0; g < n; ++g) {
            const double share = exp(height[(i64)g * f.L] - top);
            sum += share, total += share / f.variance[(i64)g * f.L + u];
        }
        f.peak[(i64)c * f.L + u] = total / sum;
    }
}

// Where the truth of a row can be at all, how near nodes go to a bound, and the bounds in reach.
struct Range {
    double low, high, near, low_bound, high_bound;
};

__device__ __noinline__ Range find_range(
    const Functions& f, double spare, double low_bound, double high_bound, double finest) {
    double low = INFINITE, high = -INFINITE, wide = 0.0;
    for (int u = lane_number(); u < f.L; u += LANES) {
        low = fmin(low, f.centre[u]), high = fmax(high, f.centre[u]);
        if (u < f.degree) wide = fmax(wide, f.widest[u]);
    }
    wide = team_max(wide);
    const double l = f.degree, of_prior = f.L > f.degree ? 1.0 / f.widest[f.degree] : 0.0;
    // The flattest that the product of all others can be, which a tail outside follows.
    const double margin = sqrt(2.0 * spare / (fmax(l - 1.0, 1.0) / wide + of_prior));
    Range r;
    r.low = team_min(low) - margin, r.high = team_max(high) + margin;
    r.near = NEAREST / sqrt(l / finest + l / wide + of_prior);
    // A bound within reach is approached, never stepped over; one far off is as good as none.
    r.low_bound = r.low < low_bound ? low_bound : -INFINITE;
    r.high_bound = r.high > high_bound ? high_bound : INFINITE;
    r.low = fmax(r.low, r.low_bound + r.near);
    r.high = fmax(fmin(r.high, r.high_bound - r.near), r.low);
    return r;
}

// Guess where the product of all functions peaks, and its precision there: the slope of log F_u is
// E[1/s] (A_u - x) under the shares of its components at x. Starts at 0, the middle answer.
__device__ __noinline__ double search(const Functions& f, const Law& law, double& precision) {
    double x = 0.0;
    for (int step = 0; step < SEARCH; ++step) {
        double total = 0.0, pull = 0.0;
        for (int u = lane_number(); u < f.L; u += LANES) {
            const int n = components(f, law, u);
            const double away = x - f.centre[u], squared = away * away;
            double top = LOG_NOTHING, sum = 0.0, of_sum = 0.0;
#pragma unroll 1
            for (int g = 0; g < n; ++g)
                top = fmax(top, highest(f, law, u, g) - squared * f.rate[(i64)g * f.L + u]);
#pragma unroll 1
            for (int g = 0; g < n; ++g) {
                const double rate = f.rate[(i64)g * f.L + u];
                const double share = exp(highest(f, law, u, g) - squared * rate - top);
                sum += share, of_sum += share * 2.0 * rate;
            }
            total += of_sum / sum, pull += of_sum / sum * f.centre[u];
        }
        precision = team_sum(total);
        x = team_sum(pull) / precision;
    }
    return x;
}

// Points of a scan from low to high: about `apart` at the centre, further apart away from it; where
// that is 0, by the factor at which ranges are peeled.
__device__ __noinline__ void place_points(double low, double high, double centre, double apart, double* x) {
    centre = fmin(fmax(centre, low), high);
    x[BELOW] = centre;
    for (int side = 0; side < 2; ++side) {
        const int m = side ? ABOVE : BELOW, sign = side ? 1 : -1;
        const double end = side ? high : low, far = sign * (end - centre);
        const double near = apart > 0.0 ? fmin(apart, far / m) : far * pow(PEEL, 1.0 - m);
        const double ratio = near > 0.0 ? far / near : 1.0;
        const double growth = exp(log(ratio) / (m - 1.0));
        double offset = near;
        for (int i = 0; i < m - 1; ++i, offset *= growth)
            x[BELOW + sign * (i + 1)] = centre + sign * offset;
        x[BELOW + sign * m] = end;
    }
}

// Log of function u of class c at x, and the mean precision of its components there.
__device__ __noinline__ double log_function(
    const Functions& f, const Law& law, int c, int u, double x, double& precision) {
    const int n = components(f, law, u);
    const double *height = f.height + (i64)c * f.M * f.L + u, *rate = f.rate + u;
    const double squared = (x - f.centre[u]) * (x - f.centre[u]);
    double top = LOG_NOTHING, total = 0.0, sum = 0.0;
#pragma unroll 1
    for (int g = 0; g < n; ++g)
        top = fmax(top, height[(i64)g * f.L] - rate[(i64)g * f.L] * squared);
#pragma unroll 1
    for (int g = 0; g < n; ++g) {
        const double term = exp(height[(i64)g * f.L] - rate[(i64)g * f.L] * squared - top);
        total += term, sum += term * rate[(i64)g * f.L];
    }
    precision = 2.0 * sum / total;
    return top + log(total);
}

// M12 at all points for one class, and the sum of the curvatures between them, times h²/2.
__device__ __noinline__ void look(Functions& f, const Law& law, int c, const double* x) {
    double total[POINTS], curvature[POINTS];
#pragma unroll 1
    for (int p = 0; p < POINTS; ++p) total[p] = curvature[p] = 0.0;
    for (int u = lane_number(); u < f.L; u += LANES) {
        double before = 0.0;
#pragma unroll 1
        for (int p = 0; p < POINTS; ++p) {
            double precision;
            const double found = log_function(f, law, c, u, x[p], precision);
            f.log_f[((i64)c * POINTS + p) * f.L + u] = found;
            total[p] += found;
            if (p > 0) {
                const bool around = (x[p - 1] - f.centre[u]) * (x[p] - f.centre[u]) <= 0.0;
                curvature[p - 1] +=
                    around ? f.peak[(i64)c * f.L + u] : fmax(before, precision);
            }
            before = precision;
        }
    }
#pragma unroll 1
    for (int p = 0; p < POINTS; ++p) {
        const double all = f.log_class[c] + team_sum(total[p]), bend = team_sum(curvature[p]);
        const double step = p + 1 < POINTS ? x[p + 1] - x[p] : 0.0;
        if (lane_number() == 0)
            f.total[c * POINTS + p] = all, f.bend[c * POINTS + p] = 0.5 * bend * step * step;
    }
    team_sync();
}

// Raise the scores of the spaces between points by the messages to u, each over the largest value
// that it has had at any point (M14a). The product of all functions but one is as if an answer of
// infinite variance were at stake, that of all functions as if it were about no answer.
//
//     q <= max(q_a, q_b) + (κh²/2 - |q_a - q_b|)₊ / 4
__device__ __noinline__ void raise_scores(Functions& f, const Law& law, int u, const double* x, double* score) {
    const bool of_messages = f.aim == Aim::messages, is_none = u == f.degree;
    const double centre = is_none ? 0.0 : f.centre[u];
    double cavity[POINTS], bend[POINTS];
#pragma unroll 1
    for (int p = 0; p < POINTS; ++p) {
        cavity[p] = bend[p] = LOG_NOTHING;
#pragma unroll 1
        for (int c = 0; c < law.C; ++c) {
            const double* log_f = f.log_f + ((i64)c * POINTS + p) * f.L + u;
            const double here = f.total[c * POINTS + p] - (is_none ? 0.0 : log_f[0]);
            cavity[p] = fmax(cavity[p], here);
            if (p + 1 < POINTS) {
                const double next = is_none ? 0.0 : log_f[f.L];
                const double there = f.total[c * POINTS + p + 1] - next;
                bend[p] = fmax(bend[p], f.bend[c * POINTS + p] + here + there);
            }
        }
    }
#pragma unroll 1
    for (int p = 0; p + 1 < POINTS; ++p) bend[p] -= cavity[p] + cavity[p + 1];
    double best = LOG_NOTHING;  // the widest are the highest, and come last
#pragma unroll 1
    for (int g = (of_messages ? law.G : 1) - 1; g >= 0; --g) {
        const double rate = of_messages ? f.rate[(i64)g * f.L + u] : 0.0;
        double* top = f.top + (i64)g * (f.degree + 1) + u;
        double highest = *top;
#pragma unroll 1
        for (int p = 0; p < POINTS; ++p) {
            const double away = x[p] - centre;
            highest = fmax(highest, cavity[p] - rate * away * away);
        }
        *top = highest, best = fmax(best, highest);
        const double over = fmax(highest, best + law.lowest - UNHEARD);
#pragma unroll 1
        for (int p = 0; p + 1 < POINTS; ++p) {
            const double from = x[p] - centre, to = x[p + 1] - centre, h = x[p + 1] - x[p];
            const double a = cavity[p] - rate * from * from, b = cavity[p + 1] - rate * to * to;
            const double excess = fmax(bend[p] + rate * h * h - fabs(a - b), 0.0);
            score[p] = fmax(score[p], fmax(a, b) + 0.25 * excess - over);
        }
    }
}

// Narrow the range down to where some message has mass; where that gains little, peel it from its
// ends if many nodes are left, else give up.
__device__ __noinline__ void zoom(
    Functions& f, const Law& law, double spare, double alpha, double finest, Range& r) {
    double precision, centre = search(f, law, precision);
    const double* narrow = narrowest(f);
    const double of_prior = f.L > f.degree ? 1.0 / narrow[f.degree] : 0.0;
    const double peak = f.degree / finest + of_prior, reach = 1.5 * sqrt(2.0 * spare);
    bool peels = false;
    for (int n = 0; n < MOST_SCANS; ++n) {
        const double width = r.high - r.low;
        // About as many nodes as there would be: fine at the answers, or evenly spread.
        const double local =
            2.0 * reach * sqrt((double)f.degree) * asinh(0.5 * width / (reach * sqrt(finest)));
        const double even = width * sqrt(precision + 1.0 / finest);
        if (!(fmin(local, even) > alpha * (peels ? MANY_NODES : FEW_NODES))) return;
        if (n == 0)
            for (i64 i = lane_number(); i < (i64)law.G * (f.degree + 1); i += LANES)
                f.top[i] = LOG_NOTHING;
        team_sync();
        double x[POINTS], score[POINTS];
        place_points(r.low, r.high, centre, peels ? 0.0 : APART / sqrt(precision), x);
#pragma unroll 1
        for (int c = 0; c < law.C; ++c) look(f, law, c, x);
#pragma unroll 1
        for (int p = 0; p < POINTS; ++p) score[p] = LOG_NOTHING;
        const int none = f.degree, first_u = f.aim == Aim::posterior ? none : 0;
        for (int u = first_u + lane_number(); u < none + (f.aim != Aim::messages); u += LANES)
            raise_scores(f, law, u, x, score);
        const double least = -spare - log1p(width * sqrt(peak));
        int first = -1, last = 0;
#pragma unroll 1
        for (int p = 0; p + 1 < POINTS; ++p)
            if (team_max(score[p]) > least) first = first < 0 ? p : first, last = p;
        if (first < 0) first = 0, last = POINTS - 2;
        double best = LOG_NOTHING;
#pragma unroll 1
        for (int p = 0; p < POINTS; ++p) {
            double most = LOG_NOTHING;
#pragma unroll 1
            for (int c = 0; c < law.C; ++c) most = fmax(most, f.total[c * POINTS + p]);
            if (most > best) best = most, centre = x[p];
        }
        team_sync();
        r.low = x[first], r.high = x[last + 1];
        const bool is_slow = !(r.high - r.low <= 0.5 * width);
        if (is_slow && peels) return;
        peels = peels || is_slow;
    }
}

// W(x) without bounds (M14): the least of it, and peaks.
__device__ __noinline__ void find_peaks(
    Functions& f, const Law& law, double spare, double alpha, double finest, double width) {
    double sum = 0.0, of_flat = 0.0, of_pull = 0.0;
    for (int u = lane_number(); u < f.L; u += LANES) sum += 1.0 / f.wide[u];
    // Messages about the lowest levels: fine nodes everywhere if these are few, else at the answers.
    const double of_lowest = f.aim == Aim::messages ? 1.0 / finest : 0.0;
    const bool is_even = width * sqrt(team_sum(sum) + of_lowest) <= alpha * MOST_EVEN_NODES;
    for (int u = lane_number(); u < f.L; u += LANES) {
        f.wide[u] = fmax(is_even ? f.wide[u] : f.widest[u], f.fine[u]);
        of_flat += 1.0 / f.wide[u], of_pull += f.centre[u] / f.wide[u];
    }
    const double flat = team_sum(of_flat), pull = team_sum(of_pull), depth = -law.lowest;
    const double fewest = alpha * MOST_WIDE_NODES / fmax(width, 1e-300);
    f.flattest = fmin(flat, fewest * fewest);
    const double height = 1.0 / fmax(1.0 / flat, finest);
    f.far_height = f.flattest < flat ? height : 0.0, f.far_decay = height / (4.5 * spare);
    if (is_even) f.flattest += of_lowest;
    for (int u = lane_number(); u < f.L; u += LANES) {
        const double fine = f.fine[u], narrow = f.narrow[u], wide = f.wide[u];
        const double away = f.centre[u] - pull / flat;
        const double drawn = fmin(0.5 * away * away * flat, fmin(MOST_DRAWN * spare, depth));
        const double behind =
            fmin(is_even ? f.behind[u] : f.ruled_out[u], fmin(MOST_RULED_OUT, depth));
        const double decay = 1.0 / (4.5 * (spare + behind) * fine);
        const double own_decay = 1.0 / ((4.5 * spare + drawn) * narrow);
        double own_drop = 0.0;
        if (!is_even && u < f.degree && f.aim == Aim::messages)
            own_drop = fmax(1.0 / narrow - 1.0 / wide, 0.0);
        // Where one of two terms is as narrow as the other and reaches as far, it is enough.
        const double drop = own_drop > 0.0 && own_decay <= decay ? 0.0 : 1.0 / fine - 1.0 / wide;
        if (drop > 0.0 && fine <= narrow) own_drop = 0.0;
        f.drop[u] = drop, f.decay[u] = decay, f.own_drop[u] = own_drop, f.own_decay[u] = own_decay;
        const double others = fmax(flat - 1.0 / wide, 0.5 / wide);
        f.far_centre[u] = (pull - f.centre[u] / wide) / others;
    }
    if (lane_number() == 0) f.far_centre[f.L] = pull / flat;
    team_sync();
}

__device__ __forceinline__ void add_peak(
    double x, double centre, double height, double decay, double& total, double& slope) {
    const double distance = x - centre, fall = 1.0 / (1.0 + decay * distance * distance);
    total += height * fall, slope += height * decay * distance * fall * fall;
}

// Distance from a bound, not below `near` on either side.
__device__ __forceinline__ double gap_from(double x, double bound, double near) {
    const double gap = x - bound;
    return fabs(gap) < near ? copysign(near, gap) : gap;
}

// Walk from the lowest place with mass to the highest in steps that follow the local scale (M14).
// Returns the number of nodes, or -1 if there are more than `room`.
//
//     x' = x + alpha / sqrt(W(x)),   weight' = weight dx'/dx
__device__ __noinline__ int place_nodes(
    Functions& f, const Law& law, double low_bound, double high_bound, double refinement, int room,
    double* node, double* log_weight) {
    const double alpha = 3.14159265358979323846 * sqrt(2.0 / log(2.0 / law.accuracy));
    const double spare = -log(law.accuracy);
    double lowest = INFINITE, finest = INFINITE;
    for (int u = lane_number(); u < f.L; u += LANES) {
        find_credible(f, law, u, spare);
        if (u < f.degree)
            lowest = fmin(lowest, f.narrow[u]), finest = fmin(finest, narrowest(f)[u]);
    }
    lowest = team_min(lowest), finest = team_min(finest);
    team_sync();
    Range r = find_range(f, spare, low_bound, high_bound, lowest);
    const double low = r.low, high = r.high;
    zoom(f, law, spare, alpha, finest, r);
    // A bound that is no longer in the range has no effect.
    if (r.low != low) r.low_bound = -INFINITE;
    if (r.high != high) r.high_bound = INFINITE;
    find_peaks(f, law, spare, alpha, finest, r.high - r.low);
    double x = r.low, weight = 1.0;
    int n = 0;
    for (; x <= r.high; ++n) {
        if (n == room) return -1;
        if (lane_number() == 0) node[n] = x, log_weight[n] = log(weight);
        double total = 0.0, slope = 0.0;
        for (int u = lane_number(); u < f.L; u += LANES) {
            if (f.drop[u] > 0.0)
                add_peak(x, f.centre[u], f.drop[u], f.decay[u], total, slope);
            if (f.own_drop[u] > 0.0)
                add_peak(x, f.centre[u], f.own_drop[u], f.own_decay[u], total, slope);
        }
        if (f.far_height > 0.0)
            for (int u = lane_number(); u <= f.L; u += LANES)
                add_peak(x, f.far_centre[u], f.far_height, f.far_decay, total, slope);
        total = f.flattest + team_sum(total), slope = team_sum(slope);
        for (int side = 0; side < 2; ++side) {
            const double bound = side ? r.high_bound : r.low_bound;
            if (isinf(bound)) continue;
            const double gap = gap_from(x, bound, r.near);
            total += BOUND_REACH * BOUND_REACH / (gap * gap);
            slope += BOUND_REACH * BOUND_REACH / (gap * gap * gap);
        }
        // A step that the spacing of floating-point numbers would swallow leads nowhere.
        const double step = fmax(alpha / refinement / sqrt(total), 1e-15 * fabs(x));
        weight *= fmax(1.0 + step * slope / total, 1e-12);
        x += step;
    }
    team_sync();
    return n;
}
