// One sweep of joint enumeration over blocks of tasks.
#pragma once

#include "enumerate_logs.hpp"

namespace voxpop::VOXPOP_VARIANT {

// The steps that take most of the time of a block, for its numbers of dimensions and levels.
struct FactorSteps {
    decltype(&grow_halves<0, 0>) grow_halves;
    decltype(&contract<0, 0, Factor::fill>) fill, recompute;
};

template <int D, int LEVELS>
inline FactorSteps factor_steps() {
    return {grow_halves<D, LEVELS>, contract<D, LEVELS, Factor::fill>,
            contract<D, LEVELS, Factor::recompute>};
}

// The messages of one block, with LEVELS levels (0: any number of them).
template <int LEVELS>
inline void enumerate_block(
    const Enumeration& e, const Messages& m, const Block& block, Factor use, vec* factor,
    const FactorSteps& step, EnumerationArrays& s, Workspace& workspace) {
    const int64_t K = LEVELS ? LEVELS : m.n_levels;
    const int64_t n_messages = m.degree * K;
    const vec* right_message = s.message + e.left.n_workers * K;
    vec* right_out = s.out + e.left.n_workers * K;
    auto grow = [&] {
        gather(e.value, m.degree * e.dimension, block, (double*)s.value);
        if (e.prior_precision > 0.0)
            gather(e.prior_mean, e.dimension, block, (double*)s.prior_mean);
        step.grow_halves(e, e.right.n_workers - 1, K, s);
    };
    receive<LEVELS>(m, block, s.old, s.incoming);
    for (int64_t j = 0; j < n_messages; ++j) s.message[j] = exp(s.incoming[j]);
    grow_joint(e.left, K, s.message, s.left_joint);
    grow_joint(e.right, K, right_message, s.right_joint);
    if (use == Factor::read) {
        contract<0, 0, Factor::read>(e, K, s, factor);
    } else {
        grow();
        (use == Factor::fill ? step.fill : step.recompute)(e, K, s, factor);
    }
    leave_one_out(e.left, K, s.message, s.left_joint, s.seen_by_left, s.out);
    leave_one_out(e.right, K, right_message, s.right_joint, s.seen_by_right, right_out);
    vec smallest = s.out[0];
    for (int64_t j = 1; j < n_messages; ++j) smallest = min(smallest, s.out[j]);
    for (int64_t j = 0; j < n_messages; ++j) s.out[j] = log(s.out[j]);
    if (any_above(all(unsafe), smallest)) {
        if (use == Factor::read) grow();
        send_in_logs(e, m, s, workspace, s.message);
        for (int64_t j = 0; j < n_messages; ++j)
            s.out[j] = where_above(all(unsafe), smallest, s.message[j], s.out[j]);
    }
}

// Return choose<D, LEVELS>() for the common numbers of dimensions and levels, which the compiler
// then knows, so that loops unroll; 0 stands for any other. It chooses the functions that compute a
// block: all code around them is compiled once.
template <class Choose>
inline auto unrolled(int64_t dimension, int64_t n_levels, Choose choose) {
    auto in_dimension = [&]<int D>() {
        switch (n_levels) {
            case 2: return choose.template operator()<D, 2>();
            case 3: return choose.template operator()<D, 3>();
            default: return choose.template operator()<D, 0>();
        }
    };
    switch (dimension) {
        case 1: return in_dimension.template operator()<1>();
        case 2: return in_dimension.template operator()<2>();
        default: return in_dimension.template operator()<0>();
    }
}

// How the messages of a block are computed, and sent.
struct EnumerationSteps {
    decltype(&enumerate_block<0>) enumerate_block;
    FactorSteps factor;
    decltype(&send<0>) send;
};

template <int D, int LEVELS>
inline EnumerationSteps enumeration_steps() {
    return {enumerate_block<LEVELS>, factor_steps<D, LEVELS>(), send<LEVELS>};
}

// One sweep over some blocks of tasks.
static double enumerate(
    const Enumeration& e, const Messages& m, int64_t first_block, int64_t last_block,
    int64_t* new_sums, Workspace& workspace) {
    const int64_t n_factor = e.left.n_configurations * e.right.n_configurations;
    EnumerationArrays s = carve(e, m, workspace);
    const auto step = unrolled(e.dimension, m.n_levels, []<int D, int LEVELS>() {
        return enumeration_steps<D, LEVELS>();
    });
    Change change;
    for (int64_t number = first_block; number < last_block; ++number) {
        const Block block(number, m.n_tasks);
        vec* factor = (vec*)e.factor + (e.factor ? number * n_factor : 0);
        const int64_t later = number + 2;
        fetch(m.worker, m.degree, later, m.n_tasks);
        fetch(m.message, m.degree * m.n_levels, later, m.n_tasks);
        if (e.factor_use != Factor::read)
            fetch(e.value, m.degree * e.dimension, later, m.n_tasks);
        step.enumerate_block(e, m, block, e.factor_use, factor, step.factor, s, workspace);
        step.send(m, block, s.old, s.out, new_sums, change, s.scratch);
    }
    return change.largest;
}

}  // namespace voxpop::VOXPOP_VARIANT
