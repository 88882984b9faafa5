// Tasks that wait for others with as many free workers, to be worked out side by side.
#pragma once

#include "messages.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Nothing of the standard library here: what it instantiates must not be shared between variants.
class Waiting {
public:
    Waiting(int64_t most_free, int64_t degree, Workspace& workspace) : n_kinds_(most_free + 2) {
        // Between two calls of answer_full one block of tasks comes, and every kind may send on
        // two blocks to be enumerated.
        capacity_ = lanes * (2 * n_kinds_ + 4);
        const int64_t n = n_kinds_ * (capacity_ + 1) + lanes * degree;
        rows_ = (int64_t*)workspace.slot(7, n), n_rows_ = rows_ + n_kinds_ * capacity_;
        order = n_rows_ + n_kinds_;
        for (int64_t i = 0; i < n_kinds_; ++i) n_rows_[i] = 0;
    }

    int64_t* order;  // (lanes, degree): room for the order of the workers of a block

    // n_free is -1 for tasks to be enumerated.
    void add(int64_t n_free, int64_t row) {
        const int64_t i = n_free + 1;
        rows_[i * capacity_ + n_rows_[i]++] = row;
    }

    // Call answer(n_free, block) for every full block.
    template <typename F>
    void answer_full(F answer) {
        for (int64_t i = n_kinds_; i-- > 0;)
            while (n_rows_[i] >= lanes) answer_some(i, lanes, answer);
    }

    // ... and in the end for those that are left; an answer may send a task on to enumeration.
    template <typename F>
    void answer_rest(F answer) {
        for (int64_t i = n_kinds_; i-- > 0;)
            while (n_rows_[i] > 0)
                answer_some(i, n_rows_[i] < lanes ? (int)n_rows_[i] : lanes, answer);
    }

private:
    template <typename F>
    void answer_some(int64_t i, int n, F answer) {
        n_rows_[i] -= n;
        const Block block(rows_ + i * capacity_ + n_rows_[i], n);
        answer(i - 1, block);
    }

    int64_t n_kinds_, capacity_, *rows_, *n_rows_;
};

}  // namespace voxpop::VOXPOP_VARIANT
