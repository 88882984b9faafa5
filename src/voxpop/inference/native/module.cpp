// voxpop._native: the compiled kernels; voxpop.inference.native_kernels puts them to use.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>

#include "binding.hpp"
#include "tables.hpp"

using namespace nanobind::literals;

namespace voxpop {

using Workers = Array<const int32_t, nb::ndim<2>>;
using Sums = Array<const int64_t, nb::ndim<2>>;
using NewSums = Array<int64_t, nb::ndim<2>>;
using MessageArray = Array<int64_t, nb::ndim<3>>;

// Threads and instruction set that kernels run with.
struct Machine {
    int threads;
    const Variant& variant;

    Machine(int threads, const std::string& name) : threads(threads), variant(find_variant(name)) {}
    int64_t blocks(int64_t n) const { return (n + variant.lanes - 1) / variant.lanes; }
};

// What all tasks hear in one sweep; see voxpop.inference.kernel_set.
struct SweepState {
    Sums sums;
    In1 log_weights;
    double quantum, floor, damping;

    Messages messages(const Workers& worker, const MessageArray& message) const {
        const size_t n = worker.shape(0), degree = worker.shape(1), K = log_weights.shape(0);
        check(degree > 0 && K > 0, "there must be answers and levels");
        check(sums.shape(1) == K, "sums must have one column per level");
        check(message.shape(0) == n && message.shape(1) == degree && message.shape(2) == K,
              "message must be (tasks, answers, levels)");
        return Messages{(int64_t)n, (int64_t)degree, (int64_t)K, worker.data(), sums.data(),
                        log_weights.data(), quantum, floor, damping, message.data()};
    }
};

// What is wanted of the truths, and room for it.
struct Wanted {
    In1 probabilities, standard;
    Out2 estimate, variance;
    Out3 quantile;

    Truths truths(const Messages& heard, size_t dimension) const {
        const size_t n = (size_t)heard.n_tasks, q = probabilities.shape(0);
        check(standard.shape(0) == q, "there must be as many quantiles as probabilities");
        check(estimate.shape(0) == n && estimate.shape(1) == dimension &&
                  variance.shape(0) == n && variance.shape(1) == dimension &&
                  quantile.shape(0) == n && quantile.shape(1) == dimension &&
                  quantile.shape(2) == q,
              "results must be (tasks, dimension) and (tasks, dimension, probabilities)");
        return Truths{heard, (int64_t)q, probabilities.data(), standard.data(), estimate.data(),
                      variance.data(), quantile.data()};
    }
};

// Run a sweep over blocks on threads, once the sums are known to fit.
template <typename F>
static double sweep(const Machine& machine, int64_t blocks, double work, const SweepState& state,
                    const NewSums& new_sums, F run) {
    check(state.sums.shape(0) == new_sums.shape(0) && state.sums.shape(1) == new_sums.shape(1),
          "old and new sums must be of the same workers and levels");
    nb::gil_scoped_release release;
    return sweep_on_threads(blocks, work, machine.threads, (int64_t)new_sums.size(),
                            new_sums.data(), run);
}

// Tasks whose levels are summed over: the tables of their degree, their values and priors.
class Tasks {
public:
    Tasks(Tables& tables, In3 value, In2 prior_mean)
        : tables_(tables), value_(value), prior_mean_(prior_mean) {
        const size_t d = (size_t)tables.dimension();
        check((int64_t)value.shape(1) == tables.degree() && value.shape(2) == d &&
                  prior_mean.shape(0) == value.shape(0) && prior_mean.shape(1) == d,
              "value must be (tasks, answers, dimension) as the tables are for, prior_mean "
              "(tasks, dimension)");
    }

    double enumerate(const SweepState& state, const Workers& worker, const MessageArray& message,
                     const NewSums& new_sums, std::optional<Array<double, nb::ndim<1>>> factor,
                     bool fill, const Machine& machine) const {
        const Messages m = messages(state, worker, message);
        const int64_t blocks = machine.blocks(m.n_tasks);
        Enumeration e = enumeration();
        if (factor) {
            const int64_t size = blocks * tables_.n_configurations() * machine.variant.lanes;
            check((int64_t)factor->shape(0) == size, "factor must hold whole blocks of tasks");
            check((uintptr_t)factor->data() % 64 == 0, "factor must lie on a 64-byte boundary");
            e.factor = factor->data();
            e.factor_use = fill ? Factor::fill : Factor::read;
        }
        const double per_task =
            0.6 * (double)tables_.n_configurations() + 8.0 * (double)(m.degree * m.n_levels);
        return sweep(machine, blocks, per_task * (double)m.n_tasks, state, new_sums,
                     [&](int64_t first, int64_t last, int64_t* mine, Workspace& workspace) {
                         return machine.variant.enumerate(e, m, first, last, mine, workspace);
                     });
    }

    void enumerate_posterior(const SweepState& state, const Workers& worker,
                             const MessageArray& message, const Wanted& wanted,
                             const Machine& machine) const {
        const Truths t =
            wanted.truths(messages(state, worker, message), (size_t)tables_.dimension());
        const Enumeration e = enumeration();
        const int64_t n = t.heard.n_tasks;
        nb::gil_scoped_release release;
        work_on_threads(machine.blocks(n), 1e4 * (double)n, machine.threads,
                        [&](int64_t first, int64_t last, Workspace& workspace) {
                            machine.variant.enumerate_posterior(e, t, first, last, workspace);
                        });
    }

protected:
    Messages messages(const SweepState& state, const Workers& worker,
                      const MessageArray& message) const {
        const Messages m = state.messages(worker, message);
        check(m.n_levels == tables_.n_levels() && m.degree == tables_.degree() &&
                  m.n_tasks == (int64_t)value_.shape(0),
              "the tables are of another number of levels, answers or tasks");
        return m;
    }
    Enumeration enumeration() const {
        Enumeration e = tables_.enumeration();
        e.value = value_.data(), e.prior_mean = prior_mean_.data();
        return e;
    }

    const Tables& tables_;
    In3 value_;
    In2 prior_mean_;
};

// The same, of which only those configurations are summed over that can matter.
class PrunedTasks : public Tasks {
public:
    PrunedTasks(Tables& tables, In1 levels, In3 value, In2 prior_mean, double prior_precision,
                double accuracy, int64_t most_free)
        : Tasks(tables, value, prior_mean), levels_(levels), prior_precision_(prior_precision),
          accuracy_(accuracy), most_free_(most_free) {
        check((int64_t)levels.shape(0) == tables.n_levels(), "levels must be the tables'");
        check(most_free >= 0, "most_free must not be negative");
    }

    double prune(bool guess, const SweepState& state, const Workers& worker,
                 const MessageArray& message, const NewSums& new_sums,
                 const Machine& machine) const {
        const Messages m = messages(state, worker, message);
        const Active a = active();
        const double n_messages = (double)(m.degree * m.n_levels);
        const double per_task = guess ? 8.0 * n_messages : n_messages * n_messages;
        const auto kernel = guess ? machine.variant.guess : machine.variant.active;
        return sweep(machine, machine.blocks(m.n_tasks), per_task * (double)m.n_tasks, state,
                     new_sums,
                     [&](int64_t first, int64_t last, int64_t* mine, Workspace& workspace) {
                         return kernel(a, m, first, last, mine, workspace);
                     });
    }

    void prune_posterior(const SweepState& state, const Workers& worker,
                         const MessageArray& message, const Wanted& wanted,
                         const Machine& machine) const {
        const Truths t =
            wanted.truths(messages(state, worker, message), (size_t)tables_.dimension());
        const Active a = active();
        const int64_t n = t.heard.n_tasks;
        nb::gil_scoped_release release;
        work_on_threads(machine.blocks(n), 1e3 * (double)n, machine.threads,
                        [&](int64_t first, int64_t last, Workspace& workspace) {
                            machine.variant.active_posterior(a, t, first, last, workspace);
                        });
    }

private:
    Active active() const {
        return Active{enumeration(), levels_.data(), prior_precision_, accuracy_, most_free_};
    }
    In1 levels_;
    double prior_precision_, accuracy_;
    int64_t most_free_;
};

// The coordinate of the biases that rows are of.
struct Bias {
    In1 mean, precision;
    Out2 edge_precision, edge_pull;
    double damping;
};

// Rows to integrate over, and the law that they share; see voxpop.inference.kernels.integrate.
class Rows {
public:
    Rows(In1 variance, In3 mixing, In1 prior_variance, In1 prior_weight, double accuracy, In2 value,
         In1 prior_mean, In1 low, In1 high, In1 known, In2 log_class, std::optional<Bias> bias)
        : variance_(variance), mixing_(mixing), prior_variance_(prior_variance),
          prior_weight_(prior_weight), value_(value), prior_mean_(prior_mean), low_(low),
          high_(high), known_(known), log_class_(log_class), bias_(bias) {
        law_ = IntegralLaw{(int64_t)mixing.shape(0), (int64_t)mixing.shape(1),
                           (int64_t)variance.shape(0), (int64_t)prior_variance.shape(0),
                           variance.data(), mixing.data(), prior_variance.data(),
                           prior_weight.data(), accuracy, bias ? bias->damping : 0.0};
        check(mixing.shape(2) == variance.shape(0) && variance.shape(0) > 0,
              "mixing must be (classes, levels, variances)");
        check(prior_weight.shape(0) == prior_variance.shape(0),
              "the prior must have as many weights as variances");
        const size_t n = value.shape(0), l = value.shape(1);
        for (const In1* per_row : {&prior_mean, &low, &high, &known})
            check(per_row->shape(0) == n, "expected one number per row");
        check(log_class.shape(0) == n && log_class.shape(1) == mixing.shape(0),
              "log_class must be (rows, classes)");
        rows_ = IntegralRows{(int64_t)n, (int64_t)l, value.data(), prior_mean.data(), low.data(),
                             high.data(), known.data(), log_class.data(), nullptr, nullptr,
                             nullptr, nullptr};
        if (bias) {
            check(bias->edge_precision.shape(0) == n && bias->edge_precision.shape(1) == l &&
                      bias->edge_pull.shape(0) == n && bias->edge_pull.shape(1) == l &&
                      bias->mean.shape(0) == bias->precision.shape(0),
                  "messages about the bias must be (rows, answers)");
            rows_.bias = bias->mean.data(), rows_.bias_precision = bias->precision.data();
            rows_.edge_precision = bias->edge_precision.data();
            rows_.edge_pull = bias->edge_pull.data();
        }
    }

    double integrate(const SweepState& state, const Workers& worker, const MessageArray& message,
                     const NewSums& new_sums, const Out2& evidence, std::optional<Out1> counts,
                     const Machine& machine) const {
        const Messages m = messages(state, worker, message);
        check(evidence.size() == log_class_.size(), "evidence must be (rows, classes)");
        const int64_t size = n_counts(law_);
        check(!counts || (int64_t)counts->shape(0) == size, "counts must be as many as there are");
        std::vector<double> by_chunk(counts ? n_chunks() * size : 0);
        const IntegralFound found{evidence.data(), counts ? by_chunk.data() : nullptr};
        const double change = sweep(
            machine, n_chunks(), work(), state, new_sums,
            [&](int64_t first, int64_t last, int64_t* mine, Workspace& workspace) {
                return machine.variant.integrate(law_, rows_, m, found, first, last, mine,
                                                 workspace);
            });
        if (counts) {
            std::fill(counts->data(), counts->data() + size, 0.0);
            for (int64_t chunk = 0; chunk < n_chunks(); ++chunk)
                for (int64_t i = 0; i < size; ++i)
                    counts->data()[i] += by_chunk[chunk * size + i];
        }
        return change;
    }

    void posterior(const SweepState& state, const Workers& worker, const MessageArray& message,
                   const Wanted& wanted, const Out2& classes, const Machine& machine) const {
        const Truths t = wanted.truths(messages(state, worker, message), 1);
        check(classes.size() == log_class_.size(), "classes must be (rows, classes)");
        nb::gil_scoped_release release;
        work_on_threads(n_chunks(), 3.0 * work(), machine.threads,
                        [&](int64_t first, int64_t last, Workspace& workspace) {
                            machine.variant.integrate_posterior(law_, rows_, t, classes.data(),
                                                                first, last, workspace);
                        });
    }

    void predict(const SweepState& state, const Workers& worker, const MessageArray& message,
                 const Out3& out, const Machine& machine) const {
        const Messages m = messages(state, worker, message);
        const size_t size = value_.size();
        check(out.shape(0) == 6 && out.size() == 6 * size, "out must be (6, rows, answers)");
        double* o = out.data();
        const LeftOut found{o, o + size, o + 2 * size, o + 3 * size, o + 4 * size, o + 5 * size};
        nb::gil_scoped_release release;
        work_on_threads(n_chunks(), 4.0 * work(), machine.threads,
                        [&](int64_t first, int64_t last, Workspace& workspace) {
                            machine.variant.integrate_predict(law_, rows_, m, found, first, last,
                                                              workspace);
                        });
    }

private:
    Messages messages(const SweepState& state, const Workers& worker,
                      const MessageArray& message) const {
        const Messages m = state.messages(worker, message);
        check(m.n_tasks == rows_.n_rows && m.degree == rows_.degree && m.n_levels == law_.n_levels,
              "value must be (rows, answers), with as many levels as mixing has");
        check(!bias_ || bias_->mean.shape(0) == state.sums.shape(0),
              "beliefs about the bias must be one per worker");
        return m;
    }
    int64_t n_chunks() const { return (rows_.n_rows + rows_per_chunk - 1) / rows_per_chunk; }
    // At a hundred nodes or more, in nanoseconds.
    double work() const {
        return 200.0 * (double)(rows_.n_rows * rows_.degree * law_.n_variances * law_.n_classes);
    }

    In1 variance_;
    In3 mixing_;
    In1 prior_variance_, prior_weight_;
    In2 value_;
    In1 prior_mean_, low_, high_, known_;
    In2 log_class_;
    std::optional<Bias> bias_;
    IntegralLaw law_;
    IntegralRows rows_;
};

static void centre(const In3& value, double per_unit, const Out3& away, const Out2& origin,
                   const Machine& machine) {
    const size_t n = value.shape(0), degree = value.shape(1), d = value.shape(2);
    check(degree > 0 && away.shape(0) == n && away.shape(1) == degree && away.shape(2) == d &&
              origin.shape(0) == n && origin.shape(1) == d,
          "away must be like value (tasks, answers, dimension), origin (tasks, dimension)");
    const Centring c{(int64_t)n, (int64_t)degree, (int64_t)d, value.data(), per_unit, away.data(),
                     origin.data()};
    nb::gil_scoped_release release;
    work_on_threads(machine.blocks(c.n_tasks), (double)(n * d * degree * degree), machine.threads,
                    [&](int64_t first, int64_t last, Workspace& workspace) {
                        machine.variant.centre(c, first, last, workspace);
                    });
}

NB_MODULE(_native, module) {
    module.doc() = "The compiled kernels; see voxpop.inference.native_kernels.";
    module.def("instruction_sets", [] {
        std::vector<std::string> names;
        for (const Variant* variant : variants()) names.emplace_back(variant->name);
        return names;
    });
    nb::class_<Machine>(module, "Machine")
        .def(nb::init<int, const std::string&>(), "threads"_a = 1, "instruction_set"_a = "")
        .def_prop_ro("lanes", [](const Machine& machine) { return machine.variant.lanes; });
    nb::class_<SweepState>(module, "SweepState")
        .def(nb::init<Sums, In1, double, double, double>(), "sums"_a, "log_weights"_a, "quantum"_a,
             "floor"_a, "damping"_a);
    nb::class_<Wanted>(module, "Wanted")
        .def(nb::init<In1, In1, Out2, Out2, Out3>(), "probabilities"_a, "standard"_a, "estimate"_a,
             "variance"_a, "quantile"_a);
    nb::class_<Tables>(module, "Tables")
        .def(nb::init<const std::vector<double>&, int64_t, int64_t, double>(), "levels"_a,
             "degree"_a, "dimension"_a, "prior_precision"_a)
        .def_prop_ro("n_configurations", &Tables::n_configurations);
    nb::class_<Tasks>(module, "Tasks")
        .def(nb::init<Tables&, In3, In2>(), nb::keep_alive<1, 2>(), "tables"_a, "value"_a,
             "prior_mean"_a)
        .def("enumerate", &Tasks::enumerate, "state"_a, "worker"_a, "message"_a, "new_sums"_a,
             "factor"_a.none(), "fill"_a, "machine"_a)
        .def("enumerate_posterior", &Tasks::enumerate_posterior, "state"_a, "worker"_a,
             "message"_a, "wanted"_a, "machine"_a);
    nb::class_<PrunedTasks, Tasks>(module, "PrunedTasks")
        .def(nb::init<Tables&, In1, In3, In2, double, double, int64_t>(), nb::keep_alive<1, 2>(),
             "tables"_a, "levels"_a, "value"_a, "prior_mean"_a, "prior_precision"_a, "accuracy"_a,
             "most_free"_a)
        .def("prune", &PrunedTasks::prune, "guess"_a, "state"_a, "worker"_a, "message"_a,
             "new_sums"_a, "machine"_a)
        .def("prune_posterior", &PrunedTasks::prune_posterior, "state"_a, "worker"_a, "message"_a,
             "wanted"_a, "machine"_a);
    nb::class_<Bias>(module, "Bias")
        .def(nb::init<In1, In1, Out2, Out2, double>(), "mean"_a, "precision"_a, "edge_precision"_a,
             "edge_pull"_a, "damping"_a);
    nb::class_<Rows>(module, "Rows")
        .def(nb::init<In1, In3, In1, In1, double, In2, In1, In1, In1, In1, In2,
                      std::optional<Bias>>(),
             "variance"_a, "mixing"_a, "prior_variance"_a, "prior_weight"_a, "accuracy"_a,
             "value"_a, "prior_mean"_a, "low"_a, "high"_a, "known"_a, "log_class"_a,
             "bias"_a.none())
        .def("integrate", &Rows::integrate, "state"_a, "worker"_a, "message"_a, "new_sums"_a,
             "evidence"_a, "counts"_a.none(), "machine"_a)
        .def("posterior", &Rows::posterior, "state"_a, "worker"_a, "message"_a, "wanted"_a,
             "classes"_a, "machine"_a)
        .def("predict", &Rows::predict, "state"_a, "worker"_a, "message"_a, "out"_a, "machine"_a);
    module.def("centre", &centre, "value"_a, "per_unit"_a, "away"_a, "origin"_a, "machine"_a);
    auto elementary = [&module](const char* name, auto member) {
        module.def(name,
                   [member](const In1& x, const Out1& out, const std::string& instruction_set) {
                       check(x.shape(0) == out.shape(0), "x and out must be equally long");
                       (find_variant(instruction_set).*member)(
                           x.data(), out.data(), (int64_t)x.shape(0));
                   },
                   "x"_a, "out"_a, "instruction_set"_a = "");
    };
    elementary("exp", &Variant::exp);
    elementary("exp2", &Variant::exp2);
    elementary("log", &Variant::log);
}

}  // namespace voxpop
