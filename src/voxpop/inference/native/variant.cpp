// The kernels for one instruction set; compiled once for each, with the flags that it needs.
#include "active_sweep.hpp"
#include "centre.hpp"
#include "integrate_posterior.hpp"
#include "integrate_predict.hpp"
#include "integrate_sweep.hpp"

namespace voxpop::VOXPOP_VARIANT {

static void enumerate_posterior(
    const Enumeration& e, const Truths& t, int64_t first_block, int64_t last_block,
    Workspace& workspace) {
    for (int64_t number = first_block; number < last_block; ++number)
        enumerate_posterior_of(e, t, Block(number, t.heard.n_tasks), workspace);
}

// Apply a function to n numbers; the last few go through one padded vector.
template <typename F>
static void map(const double* x, double* out, int64_t n, F function) {
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) *(loose*)(out + i) = function(load(x + i));
    if (i == n) return;
    vec rest = all(1.0);
    for (int lane = 0; lane < n - i; ++lane) rest[lane] = x[i + lane];
    rest = function(rest);
    for (int lane = 0; lane < n - i; ++lane) out[i + lane] = rest[lane];
}

static void exp_all(const double* x, double* out, int64_t n) {
    map(x, out, n, [](vec v) { return exp(v); });
}
static void exp2_all(const double* x, double* out, int64_t n) {
    map(x, out, n, [](vec v) { return exp2(v); });
}
static void log_all(const double* x, double* out, int64_t n) {
    map(x, out, n, [](vec v) { return log(v); });
}

extern const Variant variant;
const Variant variant = {
    VOXPOP_VARIANT_NAME, lanes, enumerate, integrate, integrate_posterior, integrate_predict, active,
    guess, active_posterior, enumerate_posterior, centre, exp_all, exp2_all, log_all};

}  // namespace voxpop::VOXPOP_VARIANT
