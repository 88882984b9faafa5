// Scratch memory of one thread.
#include <cstdlib>
#include <cstring>
#include <new>

#include "sweeps.hpp"

namespace voxpop {

Workspace::~Workspace() {
    for (double* memory : memory_) std::free(memory);
}

double* Workspace::slot(int number, size_t n_doubles) {
    if (n_doubles <= size_[number]) return memory_[number];
    size_t size = (n_doubles + 7) / 8 * 8;
    void* larger = std::aligned_alloc(64, size * sizeof(double));
    if (larger == nullptr) throw std::bad_alloc();
    // Zeroed, so that lanes that nobody reads hold numbers.
    std::memset(larger, 0, size * sizeof(double));
    if (memory_[number] != nullptr)
        std::memcpy(larger, memory_[number], size_[number] * sizeof(double));
    std::free(memory_[number]);
    memory_[number] = static_cast<double*>(larger);
    size_[number] = size;
    return memory_[number];
}

}  // namespace voxpop
