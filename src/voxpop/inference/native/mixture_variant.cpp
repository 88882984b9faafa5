// The kernels of a rich noise model, for the instruction set that this file is compiled for.
#include "mixture_nodes.hpp"
#include "mixture_predict.hpp"
#include "mixture_send.hpp"

namespace voxpop::VOXPOP_VARIANT {

extern const MixtureKernels mixture_kernels;
const MixtureKernels mixture_kernels = {place_mixture, send_mixture, predict_mixture};

}  // namespace voxpop::VOXPOP_VARIANT
