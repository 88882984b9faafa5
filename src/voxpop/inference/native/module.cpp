// voxpop._native: the sweeps of the kernels, for the native backend.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "binding.hpp"
#include "tables.hpp"

using namespace nanobind::literals;

namespace voxpop {

using Workers = Array<const int32_t, nb::ndim<2>>;
using Sums = Array<const int64_t, nb::ndim<2>>;
using NewSums = Array<int64_t, nb::ndim<2>>;
using MessageArray = Array<int64_t, nb::ndim<3>>;

// What all groups need to know for one sweep; see voxpop.inference.message_passing.Sweep.
struct SweepState {
    Sums sums;
    In1 log_weights;
    double quantum, floor, damping;
};

// What is wanted of the truths, and room for it.
struct Wanted {
    In1 probabilities, standard;
    Out2 estimate, variance;
    Out3 quantile;
};

static Messages messages(
    const SweepState& state, const Workers& worker, const MessageArray& message) {
    const Sums& sums = state.sums;
    const size_t n = worker.shape(0), degree = worker.shape(1), K = state.log_weights.shape(0);
    check(degree > 0 && K > 0, "there must be answers and levels");
    check(sums.shape(1) == K, "sums must have one column per level");
    check(message.shape(0) == n && message.shape(1) == degree && message.shape(2) == K,
          "message must be (tasks, answers, levels)");
    return Messages{(int64_t)n, (int64_t)degree, (int64_t)K, worker.data(), sums.data(),
                    state.log_weights.data(), state.quantum, state.floor, state.damping,
                    message.data()};
}

static Messages messages(
    const SweepState& state, const Workers& worker, const MessageArray& message,
    const NewSums& new_sums) {
    check(state.sums.shape(0) == new_sums.shape(0) && state.sums.shape(1) == new_sums.shape(1),
          "old and new sums must be of the same workers and levels");
    return messages(state, worker, message);
}

static int64_t n_blocks(int64_t n_tasks, const Variant& variant) {
    return (n_tasks + variant.lanes - 1) / variant.lanes;
}

static double enumerate_sweep(
    const Tables& tables, const In3& value, const In2& prior_mean, const SweepState& state,
    const Workers& worker, const MessageArray& message, const NewSums& new_sums,
    std::optional<Array<double, nb::ndim<1>>> factor, bool fill, int n_threads,
    const std::string& instruction_set) {
    const Variant& variant = find_variant(instruction_set);
    const Messages m = messages(state, worker, message, new_sums);
    const int64_t blocks = n_blocks(m.n_tasks, variant);
    check(m.n_levels == tables.n_levels() && m.degree == tables.degree(),
          "the tables are of another number of levels or answers");
    check((int64_t)value.shape(0) == m.n_tasks && (int64_t)value.shape(1) == m.degree &&
              (int64_t)value.shape(2) == tables.dimension(),
          "value must be (tasks, answers, dimension)");
    check((int64_t)prior_mean.shape(0) == m.n_tasks &&
              (int64_t)prior_mean.shape(1) == tables.dimension(),
          "prior_mean must be (tasks, dimension)");
    Enumeration e = tables.enumeration();
    e.value = value.data(), e.prior_mean = prior_mean.data();
    if (factor) {
        const int64_t size = blocks * tables.n_configurations() * variant.lanes;
        check((int64_t)factor->shape(0) == size, "factor must hold whole blocks of tasks");
        check((uintptr_t)factor->data() % 64 == 0, "factor must lie on a 64-byte boundary");
        e.factor = factor->data();
        e.factor_use = fill ? Factor::fill : Factor::read;
    }
    const double per_task =
        0.6 * (double)tables.n_configurations() + 8.0 * (double)(m.degree * m.n_levels);
    nb::gil_scoped_release release;
    return sweep_on_threads(
        blocks, per_task * (double)m.n_tasks, n_threads, (int64_t)new_sums.size(), new_sums.data(),
        [&](int64_t first, int64_t last, int64_t* mine, Workspace& workspace) {
            return variant.enumerate(e, m, first, last, mine, workspace);
        });
}

static Active active_tasks(
    const Tables& tables, const In1& levels, const In3& value, const In2& prior_mean,
    double prior_precision, double accuracy, int64_t most_free) {
    const size_t n = value.shape(0);
    check((int64_t)value.shape(1) == tables.degree() &&
              (int64_t)value.shape(2) == tables.dimension() &&
              (int64_t)levels.shape(0) == tables.n_levels() && prior_mean.shape(0) == n &&
              (int64_t)prior_mean.shape(1) == tables.dimension(),
          "values, prior means and levels must be those that the tables are for");
    check(most_free >= 0, "most_free must not be negative");
    Enumeration e = tables.enumeration();
    e.value = value.data(), e.prior_mean = prior_mean.data();
    return Active{e, levels.data(), prior_precision, accuracy, most_free};
}

static double active_sweep(
    const Tables& tables, const In1& levels, const In3& value, const In2& prior_mean,
    double prior_precision, double accuracy, int64_t most_free, bool guess,
    const SweepState& state, const Workers& worker, const MessageArray& message,
    const NewSums& new_sums, int n_threads, const std::string& instruction_set) {
    const Variant& variant = find_variant(instruction_set);
    const Messages m = messages(state, worker, message, new_sums);
    const Active a =
        active_tasks(tables, levels, value, prior_mean, prior_precision, accuracy, most_free);
    check(m.n_levels == tables.n_levels() && m.degree == tables.degree() &&
              (int64_t)value.shape(0) == m.n_tasks,
          "the tables are of another number of levels, answers or tasks");
    const double n_messages = (double)(m.degree * m.n_levels);
    const double per_task = guess ? 8.0 * n_messages : n_messages * n_messages;
    nb::gil_scoped_release release;
    return sweep_on_threads(
        n_blocks(m.n_tasks, variant), per_task * (double)m.n_tasks, n_threads,
        (int64_t)new_sums.size(), new_sums.data(),
        [&](int64_t first, int64_t last, int64_t* mine, Workspace& workspace) {
            return (guess ? variant.guess : variant.active)(a, m, first, last, mine, workspace);
        });
}

static double integrate_sweep(
    const In2& value, const In1& prior_mean, double prior_variance, const In1& levels,
    double accuracy, const SweepState& state, const Workers& worker,
    const MessageArray& message, const NewSums& new_sums, int n_threads,
    const std::string& instruction_set) {
    const Variant& variant = find_variant(instruction_set);
    const Messages m = messages(state, worker, message, new_sums);
    check((int64_t)value.shape(0) == m.n_tasks && (int64_t)value.shape(1) == m.degree,
          "value must be (tasks, answers)");
    check((int64_t)prior_mean.shape(0) == m.n_tasks, "prior_mean must be one per task");
    check((int64_t)levels.shape(0) == m.n_levels, "levels must be as many as log_weights");
    const Integration g{levels.data(), prior_variance, accuracy, 1.0, value.data(),
                        prior_mean.data()};
    // At a hundred nodes or more.
    const double work = 200.0 * (double)(m.n_tasks * m.degree * m.n_levels);
    nb::gil_scoped_release release;
    return sweep_on_threads(
        n_blocks(m.n_tasks, variant), work, n_threads, (int64_t)new_sums.size(), new_sums.data(),
        [&](int64_t first, int64_t last, int64_t* mine, Workspace& workspace) {
            return variant.integrate(g, m, first, last, mine, workspace);
        });
}

static Truths truths(const Messages& heard, const Wanted& wanted, size_t dimension) {
    const auto& [probabilities, standard, estimate, variance, quantile] = wanted;
    const size_t n = (size_t)heard.n_tasks, q = probabilities.shape(0);
    check(standard.shape(0) == q, "there must be as many quantiles as probabilities");
    check(estimate.shape(0) == n && estimate.shape(1) == dimension && variance.shape(0) == n &&
              variance.shape(1) == dimension && quantile.shape(0) == n &&
              quantile.shape(1) == dimension && quantile.shape(2) == q,
          "results must be (tasks, dimension) and (tasks, dimension, probabilities)");
    return Truths{heard, (int64_t)q, probabilities.data(), standard.data(), estimate.data(),
                  variance.data(), quantile.data()};
}

static void enumerate_posterior(
    const Tables& tables, const In3& value, const In2& prior_mean, const SweepState& state,
    const Workers& worker, const MessageArray& message, const Wanted& wanted, int n_threads, const std::string& instruction_set) {
    const Variant& variant = find_variant(instruction_set);
    const Messages m = messages(state, worker, message);
    const Truths t = truths(m, wanted, (size_t)tables.dimension());
    check(m.n_levels == tables.n_levels() && m.degree == tables.degree(),
          "the tables are of another number of levels or answers");
    check((int64_t)value.shape(0) == m.n_tasks && (int64_t)value.shape(1) == m.degree &&
              (int64_t)value.shape(2) == tables.dimension() &&
              (int64_t)prior_mean.shape(0) == m.n_tasks &&
              (int64_t)prior_mean.shape(1) == tables.dimension(),
          "value must be (tasks, answers, dimension), prior_mean (tasks, dimension)");
    Enumeration e = tables.enumeration();
    e.value = value.data(), e.prior_mean = prior_mean.data();
    nb::gil_scoped_release release;
    work_on_threads(n_blocks(m.n_tasks, variant), 1e4 * (double)m.n_tasks, n_threads,
                    [&](int64_t first, int64_t last, Workspace& workspace) {
                        variant.enumerate_posterior(e, t, first, last, workspace);
                    });
}

static void active_posterior(
    const Tables& tables, const In1& levels, const In3& value, const In2& prior_mean,
    double prior_precision, double accuracy, int64_t most_free, const SweepState& state,
    const Workers& worker, const MessageArray& message, const Wanted& wanted, int n_threads, const std::string& instruction_set) {
    const Variant& variant = find_variant(instruction_set);
    const Messages m = messages(state, worker, message);
    const Truths t = truths(m, wanted, (size_t)tables.dimension());
    const Active a =
        active_tasks(tables, levels, value, prior_mean, prior_precision, accuracy, most_free);
    check(m.n_levels == tables.n_levels() && m.degree == tables.degree() &&
              (int64_t)value.shape(0) == m.n_tasks,
          "the tables are of another number of levels, answers or tasks");
    nb::gil_scoped_release release;
    work_on_threads(n_blocks(m.n_tasks, variant), 1e3 * (double)m.n_tasks, n_threads,
                    [&](int64_t first, int64_t last, Workspace& workspace) {
                        variant.active_posterior(a, t, first, last, workspace);
                    });
}

static void integrate_posterior(
    const In2& value, const In1& prior_mean, double prior_variance, const In1& levels,
    double accuracy, double refinement, const SweepState& state, const Workers& worker,
    const MessageArray& message, const Wanted& wanted, int n_threads, const std::string& instruction_set) {
    const Variant& variant = find_variant(instruction_set);
    const Messages m = messages(state, worker, message);
    const Truths t = truths(m, wanted, 1);
    check((int64_t)value.shape(0) == m.n_tasks && (int64_t)value.shape(1) == m.degree &&
              (int64_t)prior_mean.shape(0) == m.n_tasks &&
              (int64_t)levels.shape(0) == m.n_levels,
          "value must be (tasks, answers), prior_mean (tasks,), levels (levels,)");
    const Integration g{levels.data(), prior_variance, accuracy, refinement, value.data(),
                        prior_mean.data()};
    nb::gil_scoped_release release;
    work_on_threads(n_blocks(m.n_tasks, variant), 1e4 * (double)m.n_tasks, n_threads,
                    [&](int64_t first, int64_t last, Workspace& workspace) {
                        variant.integrate_posterior(g, t, first, last, workspace);
                    });
}

static void centre(
    const In3& value, double per_unit, const Out3& away, const Out2& origin, int n_threads,
    const std::string& instruction_set) {
    const Variant& variant = find_variant(instruction_set);
    const size_t n = value.shape(0), degree = value.shape(1), d = value.shape(2);
    check(degree > 0 && away.shape(0) == n && away.shape(1) == degree && away.shape(2) == d &&
              origin.shape(0) == n && origin.shape(1) == d,
          "away must be like value (tasks, answers, dimension), origin (tasks, dimension)");
    const Centring c{(int64_t)n, (int64_t)degree, (int64_t)d, value.data(), per_unit, away.data(),
                     origin.data()};
    nb::gil_scoped_release release;
    work_on_threads(n_blocks(c.n_tasks, variant), (double)(n * d * degree * degree), n_threads,
                    [&](int64_t first, int64_t last, Workspace& workspace) {
                        variant.centre(c, first, last, workspace);
                    });
}

NB_MODULE(_native, module) {
    module.doc() = "Sweeps of the kernels, compiled; see voxpop.inference.compiled.";

    nb::class_<Tables>(module, "Tables")
        .def(nb::init<const std::vector<double>&, int64_t, int64_t, double>(), "levels"_a,
             "degree"_a, "dimension"_a, "prior_precision"_a)
        .def_prop_ro("n_configurations", &Tables::n_configurations);

    module.def("instruction_sets", [] {
        std::vector<std::string> names;
        for (const Variant* variant : variants()) names.emplace_back(variant->name);
        return names;
    });
    module.def("lanes", [](const std::string& name) { return find_variant(name).lanes; },
               "instruction_set"_a = "");
    nb::class_<SweepState>(module, "SweepState")
        .def(nb::init<Sums, In1, double, double, double>(), "sums"_a, "log_weights"_a, "quantum"_a,
             "floor"_a, "damping"_a);
    nb::class_<Wanted>(module, "Wanted")
        .def(nb::init<In1, In1, Out2, Out2, Out3>(), "probabilities"_a, "standard"_a, "estimate"_a,
             "variance"_a, "quantile"_a);
    module.def("enumerate_sweep", &enumerate_sweep, "tables"_a, "value"_a, "prior_mean"_a,
               "state"_a, "worker"_a, "message"_a, "new_sums"_a, "factor"_a.none(), "fill"_a,
               "n_threads"_a, "instruction_set"_a = "");
    module.def("active_sweep", &active_sweep, "tables"_a, "levels"_a, "value"_a, "prior_mean"_a,
               "prior_precision"_a, "accuracy"_a, "most_free"_a, "guess"_a, "state"_a, "worker"_a,
               "message"_a, "new_sums"_a, "n_threads"_a, "instruction_set"_a = "");
    module.def("integrate_sweep", &integrate_sweep, "value"_a, "prior_mean"_a,
               "prior_variance"_a, "levels"_a, "accuracy"_a, "state"_a, "worker"_a, "message"_a,
               "new_sums"_a, "n_threads"_a, "instruction_set"_a = "");
    module.def("enumerate_posterior", &enumerate_posterior, "tables"_a, "value"_a,
               "prior_mean"_a, "state"_a, "worker"_a, "message"_a, "wanted"_a, "n_threads"_a, "instruction_set"_a = "");
    module.def("active_posterior", &active_posterior, "tables"_a, "levels"_a, "value"_a,
               "prior_mean"_a, "prior_precision"_a, "accuracy"_a, "most_free"_a, "state"_a,
               "worker"_a, "message"_a, "wanted"_a, "n_threads"_a, "instruction_set"_a = "");
    module.def("integrate_posterior", &integrate_posterior, "value"_a, "prior_mean"_a,
               "prior_variance"_a, "levels"_a, "accuracy"_a, "refinement"_a, "state"_a,
               "worker"_a, "message"_a, "wanted"_a, "n_threads"_a, "instruction_set"_a = "");
    module.def("centre", &centre, "value"_a, "per_unit"_a, "away"_a, "origin"_a, "n_threads"_a,
               "instruction_set"_a = "");
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
    bind_mixture(module);
}

}  // namespace voxpop
