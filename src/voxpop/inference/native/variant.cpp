// The kernels for one instruction set; compiled once for each, with the flags that it needs.
#include "active_posterior.hpp"
#include "centre.hpp"
#include "integrate_posterior.hpp"
#include "integrate_predict.hpp"
#include "integrate_sweep.hpp"
#include "match_predict.hpp"
#include "match_sweep.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Apply a function to n numbers, the last few of them one by one.
template <vec (*FUNCTION)(vec)>
static void map(const double* x, double* out, int64_t n) {
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) *(loose*)(out + i) = FUNCTION(load(x + i));
    for (; i < n; ++i) out[i] = FUNCTION(all(x[i]))[0];
}

extern const Variant variant;
const Variant variant = {
    VOXPOP_VARIANT_NAME, lanes, enumerate, active, guess, enumerate_posterior, active_posterior,
    integrate, integrate_posterior, integrate_predict, match, match_predict, centre, map<exp>, map<exp2>, map<log>};

}  // namespace voxpop::VOXPOP_VARIANT
