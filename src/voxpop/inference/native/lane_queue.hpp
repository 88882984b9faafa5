// Tasks that wait for others with as many free workers, to be computed side by side.
#pragma once

#include "messages.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Nothing of the standard library here: what it instantiates must not be shared between variants.
class LaneQueue {
public:
    LaneQueue(int64_t most_free, int64_t degree, Workspace& workspace)
        : n_kinds_(most_free + 2), degree_(degree) {
        // Between two calls of `answer` one block of tasks comes, and every kind may send on two
        // blocks to be enumerated.
        capacity_ = lanes * (2 * n_kinds_ + 4);
        const int64_t n = n_kinds_ * (capacity_ + 1) + lanes * degree;
        rows_ = (int64_t*)workspace.slot(7, n), n_rows_ = rows_ + n_kinds_ * capacity_;
        order_ = n_rows_ + n_kinds_;
        for (int64_t i = 0; i < n_kinds_; ++i) n_rows_[i] = 0;
    }

    // Room for the order of the workers of one task of a block.
    int64_t* order(int lane) { return order_ + lane * degree_; }

    // n_free is -1 for tasks to be enumerated.
    void add(int64_t n_free, int64_t row) {
        const int64_t i = n_free + 1;
        rows_[i * capacity_ + n_rows_[i]++] = row;
    }

    // Call f(n_free, block) while a block of at least this many tasks can be made; f may send a task
    // on to enumeration.
    template <typename F>
    void answer(int64_t at_least, F f) {
        for (int64_t i = n_kinds_; i-- > 0;)
            while (n_rows_[i] >= at_least) {
                const int n = n_rows_[i] < lanes ? (int)n_rows_[i] : lanes;
                n_rows_[i] -= n;
                f(i - 1, Block(rows_ + i * capacity_ + n_rows_[i], n));
            }
    }

private:
    int64_t n_kinds_, degree_, capacity_, *rows_, *n_rows_, *order_;
};

}  // namespace voxpop::VOXPOP_VARIANT
