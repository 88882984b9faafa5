// Choice of the instruction set at run time, the static partition over threads, their memory.
#include "dispatch.hpp"

#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <thread>

namespace voxpop {

namespace plain {
extern const Variant variant;
}
#if defined(VOXPOP_X86)
namespace avx2 {
extern const Variant variant;
}
namespace avx512 {
extern const Variant variant;
}
#endif

const std::vector<const Variant*>& variants() {
    static const std::vector<const Variant*> found = [] {
        std::vector<const Variant*> usable;
#if defined(VOXPOP_X86)
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
            usable.push_back(&avx512::variant);
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
            usable.push_back(&avx2::variant);
#endif
        usable.push_back(&plain::variant);
        return usable;
    }();
    return found;
}

// A thread costs about 50 microseconds to start, so it should have several times that to do; and
// sums of its own cost about this much each, to make room for them and to add them up.
static const double least_work = 2e5, work_per_sum = 8.0;

double sweep_on_threads(
    int64_t n_blocks, double work, int n_threads, int64_t n_sums, int64_t* new_sums,
    const RangeSweep& sweep) {
    const double least = std::max(least_work, work_per_sum * (double)n_sums);
    const int64_t worth = (int64_t)std::min(work / least, 1e6);
    const int64_t n = std::max<int64_t>(1, std::min<int64_t>({n_threads, n_blocks, worth}));
    std::vector<double> change(n, 0.0);
    std::vector<std::exception_ptr> failure(n);
    std::vector<std::vector<int64_t>> sums(n);
    std::barrier all_swept(n);
    auto run = [&](int64_t t) {
        try {
            Workspace workspace;
            if (t > 0) sums[t].assign(n_sums, 0);
            int64_t* mine = t > 0 ? sums[t].data() : new_sums;
            change[t] = sweep(n_blocks * t / n, n_blocks * (t + 1) / n, mine, workspace);
        } catch (...) {
            failure[t] = std::current_exception();
        }
        all_swept.arrive_and_wait();
        for (const std::vector<int64_t>& others : sums)
            for (int64_t i = n_sums * t / n; !others.empty() && i < n_sums * (t + 1) / n; ++i)
                new_sums[i] += others[i];
    };
    std::vector<std::thread> threads;
    for (int64_t t = 1; t < n; ++t) threads.emplace_back(run, t);
    run(0);
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& e : failure)
        if (e) std::rethrow_exception(e);
    return *std::max_element(change.begin(), change.end());
}

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
