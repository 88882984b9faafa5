// What integrals and matched moments share: the law of all rows, and messages about biases.

#define INFINITE __longlong_as_double(0x7ff0000000000000ll)

// What all rows have in common (Law).
struct Law {
    int C, K, G, J;
    const double *variance, *mixing, *prior_variance, *prior_weight;  // (G), (C, K, G), (J), (J)
    double accuracy, lowest;
};

__device__ __forceinline__ double* carve(double*& next, i64 n) { return (next += n) - n; }

// M31: without an answer, a bias has the mean `old` and the variance `before`; with it, the mean
// old + shift and a `variance`. The message about the bias is the latter divided by the former.
__device__ __forceinline__ void put_bias(
    double before, double old, double shift, double variance, double damping,
    double& edge_precision, double& edge_pull) {
    variance = fmin(fmax(variance, 1e-12 * before), before);
    const double precision = fmax(1.0 / variance - 1.0 / before, 1e-9 / before);
    const double pull = (old + shift) * (precision + 1.0 / before) - old / before;
    edge_precision = damping * edge_precision + (1.0 - damping) * precision;
    edge_pull = damping * edge_pull + (1.0 - damping) * pull;
}

#define LAW int n_classes, int n_levels, int n_variances, int n_prior, const double *variance, \
            const double *mixing, const double *prior_variance, const double *prior_weight, \
            double accuracy
#define TAKE_LAW const Law law{n_classes, n_levels, n_variances, n_prior, variance, mixing, \
                               prior_variance, prior_weight, accuracy, floor};
#define MESSAGES const int *worker, i64 *message, const i64 *sums, const double *log_weights, \
                 double quantum, double floor, double damping
#define TAKE_MESSAGES const Messages m{worker, message, sums, log_weights, quantum, floor, damping};
