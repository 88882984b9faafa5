// What all parts of the module share: arrays as Python hands them over, and their checks.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <stdexcept>
#include <string>

#include "dispatch.hpp"

namespace voxpop {

namespace nb = nanobind;

template <typename T, typename... Options>
using Array = nb::ndarray<T, Options..., nb::c_contig, nb::device::cpu>;
using In1 = Array<const double, nb::ndim<1>>;
using In2 = Array<const double, nb::ndim<2>>;
using In3 = Array<const double, nb::ndim<3>>;
using Out1 = Array<double, nb::ndim<1>>;
using Out2 = Array<double, nb::ndim<2>>;
using Out3 = Array<double, nb::ndim<3>>;

inline void check(bool condition, const char* message) {
    if (!condition) throw std::invalid_argument(message);
}

inline const Variant& find_variant(const std::string& name) {
    for (const Variant* variant : variants())
        if (name.empty() || name == variant->name) return *variant;
    throw std::invalid_argument("no instruction set " + name + " on this machine");
}


}  // namespace voxpop
