// voxpop._native: the compiled kernels; voxpop.inference.native_kernels puts them to use.
//
// What they are given are the objects of voxpop.inference.kernel_set; their arrays are taken out
// of them here, checked, and handed on as plain structs.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>

#include "dispatch.hpp"
#include "tables.hpp"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace voxpop {

template <typename T, int DIMENSION>
using Array = nb::ndarray<T, nb::ndim<DIMENSION>, nb::c_contig, nb::device::cpu>;
template <int DIMENSION>
using In = Array<const double, DIMENSION>;
template <int DIMENSION>
using Out = Array<double, DIMENSION>;
using NewSums = Array<int64_t, 2>;

static void check(bool condition, const char* message) {
    if (!condition) throw std::invalid_argument(message);
}

// Whether an array has that shape.
template <typename A, typename... Sizes>
static bool is_shaped(const A& array, Sizes... sizes) {
    size_t axis = 0;
    return ((array.shape(axis++) == (size_t)sizes) && ...);
}

// An attribute; what is written to must be the array itself, not a copy.
template <typename T>
static T get(nb::handle of, const char* name, bool convert = true) {
    return nb::cast<T>(of.attr(name), convert);
}

static const Variant& find_variant(const std::string& name) {
    for (const Variant* variant : variants())
        if (name.empty() || name == variant->name) return *variant;
    throw std::invalid_argument("no instruction set " + name + " on this machine");
}

// The messages of a group: its edges, and the state of the sweep.
struct Group : Messages {
    int64_t n_workers;

    Group(nb::handle state, nb::handle edges)
        : sums_(get<Array<const int64_t, 2>>(state, "sums")),
          log_weights_(get<In<1>>(state, "log_weights")),
          worker_(get<Array<const int32_t, 2>>(edges, "worker")),
          message_(get<Array<int64_t, 3>>(edges, "message", false)) {
        static_cast<Messages&>(*this) = {
            (int64_t)worker_.shape(0), (int64_t)worker_.shape(1), (int64_t)log_weights_.shape(0),
            worker_.data(), sums_.data(), log_weights_.data(), get<double>(state, "quantum"),
            get<double>(state, "floor"), get<double>(state, "damping"), message_.data()};
        n_workers = (int64_t)sums_.shape(0);
        check(degree > 0 && n_levels > 0, "there must be answers and levels");
        check(is_shaped(sums_, n_workers, n_levels), "sums must have one column per level");
        check(is_shaped(message_, n_tasks, degree, n_levels),
              "message must be (tasks, answers, levels)");
    }

private:
    Array<const int64_t, 2> sums_;
    In<1> log_weights_;
    Array<const int32_t, 2> worker_;
    Array<int64_t, 3> message_;
};

// What is wanted of the truths of a group: quantiles, also of the standard normal distribution, and
// a Posterior with room for it all.
struct Wanted : Truths {
    Wanted(const Group& group, int64_t dimension, const In<1>& probabilities, const In<1>& standard,
           nb::handle room)
        : estimate_(get<Out<2>>(room, "estimate", false)),
          variance_(get<Out<2>>(room, "variance", false)),
          quantile_(get<Out<3>>(room, "quantile", false)) {
        const int64_t n = group.n_tasks, q = (int64_t)probabilities.shape(0);
        static_cast<Truths&>(*this) = {
            group, q, probabilities.data(), standard.data(), estimate_.data(), variance_.data(),
            quantile_.data()};
        check(is_shaped(standard, q), "there must be as many quantiles as probabilities");
        check(is_shaped(estimate_, n, dimension) && is_shaped(variance_, n, dimension) &&
                  is_shaped(quantile_, n, dimension, q),
              "results must be (tasks, dimension) and (tasks, dimension, probabilities)");
    }

private:
    Out<2> estimate_, variance_;
    Out<3> quantile_;
};

// Threads and instruction set that kernels run with.
struct Machine {
    int threads;
    const Variant& variant;

    Machine(int threads, const std::string& name) : threads(threads), variant(find_variant(name)) {}
    int64_t blocks(int64_t n) const { return (n + variant.lanes - 1) / variant.lanes; }

    template <class Kernel, class... Given>
    double sweep(int64_t blocks, double work, const Group& group, const NewSums& new_sums,
                 Kernel kernel, const Given&... given) const {
        check(is_shaped(new_sums, group.n_workers, group.n_levels),
              "old and new sums must be of the same workers and levels");
        nb::gil_scoped_release release;
        return sweep_on_threads(
            blocks, work, threads, (int64_t)new_sums.size(), new_sums.data(),
            [&](int64_t first, int64_t last, int64_t* mine, Workspace& workspace) {
                return kernel(given..., first, last, mine, workspace);
            });
    }

    // The same for kernels that add nothing up.
    template <class Kernel, class... Given>
    void work(int64_t blocks, double work, Kernel kernel, const Given&... given) const {
        nb::gil_scoped_release release;
        sweep_on_threads(blocks, work, threads, 0, nullptr,
                         [&](int64_t first, int64_t last, int64_t*, Workspace& workspace) {
                             kernel(given..., first, last, workspace);
                             return 0.0;
                         });
    }
};

// Tasks whose levels are summed over: the tables of their degree, their values and priors, and room
// for their factors, if these are to be kept between sweeps; `accuracy` and `most_free` are for
// sums over those configurations that can matter.
class Tasks {
public:
    Tasks(const Tables& tables, In<3> value, In<2> prior_mean, Machine machine,
          std::optional<Out<1>> factor, double accuracy, int64_t most_free)
        : tables_(tables), value_(value), prior_mean_(prior_mean), machine_(machine),
          factor_(factor), e_(tables.enumeration()) {
        const size_t n = value.shape(0);
        check(is_shaped(value, n, tables.degree, tables.dimension) &&
                  is_shaped(prior_mean, n, tables.dimension),
              "value must be (tasks, answers, dimension) as the tables are for, prior_mean "
              "(tasks, dimension)");
        check(most_free >= 0, "most_free must not be negative");
        e_.value = value.data(), e_.prior_mean = prior_mean.data();
        e_.accuracy = accuracy, e_.most_free = most_free;
        if (!factor) return;
        const int64_t per_block = tables.n_configurations() * machine.variant.lanes;
        check(is_shaped(*factor, machine.blocks(n) * per_block),
              "factor must hold whole blocks of tasks");
        check((uintptr_t)factor->data() % 64 == 0, "factor must lie on a 64-byte boundary");
        e_.factor = factor->data(), e_.factor_use = Factor::fill;
    }

    double enumerate(nb::handle state, nb::handle edges, const NewSums& new_sums) {
        const double change = sweep(&Variant::enumerate,
                                    0.6 * (double)tables_.n_configurations() + 8.0 * n_messages(),
                                    state, edges, new_sums);
        if (factor_) e_.factor_use = Factor::read;
        return change;
    }
    double prune(nb::handle state, nb::handle edges, const NewSums& new_sums) {
        return sweep(&Variant::active, n_messages() * n_messages(), state, edges, new_sums);
    }
    double guess(nb::handle state, nb::handle edges, const NewSums& new_sums) {
        return sweep(&Variant::guess, 8.0 * n_messages(), state, edges, new_sums);
    }

    // By enumeration, or if `is_pruned` over those configurations that can matter.
    void posterior(bool is_pruned, nb::handle state, nb::handle edges, const In<1>& probabilities,
                   const In<1>& standard, nb::handle room) const {
        const Group group = messages(state, edges);
        const Wanted wanted(group, tables_.dimension, probabilities, standard, room);
        const Variant& v = machine_.variant;
        machine_.work(machine_.blocks(group.n_tasks), (is_pruned ? 1e3 : 1e4) * group.n_tasks,
                      is_pruned ? v.active_posterior : v.enumerate_posterior, e_, wanted);
    }

private:
    double n_messages() const { return (double)(tables_.degree * tables_.n_levels()); }

    Group messages(nb::handle state, nb::handle edges) const {
        Group group(state, edges);
        check(group.n_levels == tables_.n_levels() && group.degree == tables_.degree &&
                  group.n_tasks == (int64_t)value_.shape(0),
              "the tables are of another number of levels, answers or tasks");
        return group;
    }

    // `work` is that of one task, in nanoseconds.
    double sweep(Sweep<const Enumeration&, const Messages&> Variant::*kernel, double work,
                 nb::handle state, nb::handle edges, const NewSums& new_sums) const {
        const Group group = messages(state, edges);
        return machine_.sweep(machine_.blocks(group.n_tasks), work * (double)group.n_tasks, group,
                              new_sums, machine_.variant.*kernel, e_, group);
    }

    const Tables& tables_;
    In<3> value_;
    In<2> prior_mean_;
    Machine machine_;
    std::optional<Out<1>> factor_;
    Enumeration e_;
};

// What RowInputs and MatchInputs share: the Law of all rows, their priors, classes and messages.
struct RowsOfLaw {
    Group group;
    In<1> variance, prior_variance, prior_weight, prior_mean, known;
    In<3> mixing;
    In<2> log_class;
    std::optional<In<1>> bias, bias_precision;
    std::optional<Out<2>> edge_precision, edge_pull;
    IntegralLaw given;

    RowsOfLaw(nb::handle law, nb::handle r, nb::handle state, nb::handle edges)
        : group(state, edges), variance(get<In<1>>(law.attr("grid"), "variance")),
          prior_variance(get<In<1>>(law, "prior_variance")),
          prior_weight(get<In<1>>(law, "prior_weight")), prior_mean(get<In<1>>(r, "prior_mean")),
          known(get<In<1>>(r, "known")), mixing(get<In<3>>(law.attr("grid"), "mixing")),
          log_class(get<In<2>>(r, "log_class")) {
        given = {(int64_t)mixing.shape(0), (int64_t)mixing.shape(1), (int64_t)mixing.shape(2),
                 (int64_t)prior_variance.shape(0), variance.data(), mixing.data(),
                 prior_variance.data(), prior_weight.data(), get<double>(law, "accuracy"), 0.0};
        check(given.n_variances > 0 && is_shaped(variance, given.n_variances),
              "mixing must be (classes, levels, variances)");
        check(is_shaped(prior_weight, given.n_prior),
              "the prior must have as many weights as variances");
        check(is_shaped(prior_mean, known.shape(0)), "expected one number per row");
        check(is_shaped(log_class, known.shape(0), given.n_classes),
              "log_class must be (rows, classes)");
        check(group.n_levels == given.n_levels, "there must be as many levels as mixing has");
    }

protected:
    // Take the beliefs about the workers' biases, and the messages about them, like `worker`.
    template <class Inputs>
    void take_bias(nb::handle r, Inputs& rows) {
        const nb::object b = r.attr("bias");
        if (b.is_none()) return;
        bias = get<In<1>>(b, "mean"), bias_precision = get<In<1>>(b, "precision");
        edge_precision = get<Out<2>>(b, "edge_precision", false);
        edge_pull = get<Out<2>>(b, "edge_pull", false);
        given.bias_damping = get<double>(b, "damping");
        rows.bias = bias->data(), rows.bias_precision = bias_precision->data();
        rows.edge_precision = edge_precision->data(), rows.edge_pull = edge_pull->data();
        check(is_shaped(*edge_precision, group.n_tasks, group.degree) &&
                  is_shaped(*edge_pull, group.n_tasks, group.degree),
              "messages about the bias must be (rows, answers)");
        check(is_shaped(*bias, group.n_workers) && is_shaped(*bias_precision, group.n_workers),
              "beliefs about the bias must be one per worker");
    }
};

// Rows to integrate over (RowInputs).
struct Rows : RowsOfLaw {
    In<1> low, high;
    In<2> value;
    IntegralRows rows;

    Rows(nb::handle law, nb::handle r, nb::handle state, nb::handle edges)
        : RowsOfLaw(law, r, state, edges), low(get<In<1>>(r, "low")), high(get<In<1>>(r, "high")),
          value(get<In<2>>(r, "value")) {
        const size_t n = value.shape(0), degree = value.shape(1);
        rows = {(int64_t)n, (int64_t)degree, value.data(), prior_mean.data(), low.data(),
                high.data(), known.data(), log_class.data(), nullptr, nullptr, nullptr, nullptr};
        for (const In<1>* per_row : {&low, &high, &known})
            check(is_shaped(*per_row, n), "expected one number per row");
        check(group.n_tasks == rows.n_rows && group.degree == rows.degree,
              "value must be (rows, answers)");
        take_bias(r, rows);
    }

    int64_t n_chunks() const { return (rows.n_rows + rows_per_chunk - 1) / rows_per_chunk; }
    // At a hundred nodes or more, in nanoseconds.
    double work() const {
        return 200.0 * (double)(value.size() * given.n_variances * given.n_classes);
    }
};

static double integrate(nb::handle law, nb::handle rows, nb::handle state, nb::handle edges,
                        const NewSums& new_sums, const Out<2>& evidence,
                        std::optional<Out<1>> counts, const Machine& machine) {
    const Rows r(law, rows, state, edges);
    const int64_t size = n_counts(r.given), n_chunks = r.n_chunks();
    check(evidence.size() == r.log_class.size(), "evidence must be (rows, classes)");
    check(!counts || is_shaped(*counts, size), "counts must be as many as there are");
    std::vector<double> by_chunk(counts ? n_chunks * size : 0);
    const IntegralFound found{evidence.data(), counts ? by_chunk.data() : nullptr};
    const double change = machine.sweep(n_chunks, r.work(), r.group, new_sums,
                                        machine.variant.integrate, r.given, r.rows, r.group, found);
    if (counts) std::fill(counts->data(), counts->data() + size, 0.0);
    for (size_t i = 0; i < by_chunk.size(); ++i) counts->data()[i % size] += by_chunk[i];
    return change;
}

static void integrate_posterior(nb::handle law, nb::handle rows, nb::handle state, nb::handle edges,
                                const In<1>& probabilities, const In<1>& standard, nb::handle room,
                                const Out<2>& classes, const Machine& machine) {
    const Rows r(law, rows, state, edges);
    const Wanted wanted(r.group, 1, probabilities, standard, room);
    check(classes.size() == r.log_class.size(), "classes must be (rows, classes)");
    machine.work(r.n_chunks(), 3.0 * r.work(), machine.variant.integrate_posterior, r.given, r.rows,
                 wanted, classes.data());
}

// Room for predictions (6, answers).
static LeftOut left_out(double* o, size_t size, bool with_pit) {
    double* pit = with_pit ? o + size : nullptr;
    return {o, pit, o + 2 * size, o + 3 * size, o + 4 * size, o + 5 * size};
}

static void integrate_predict(nb::handle law, nb::handle rows, nb::handle state, nb::handle edges,
                              const Out<3>& out, bool with_pit, const Machine& machine) {
    const Rows r(law, rows, state, edges);
    const size_t size = r.value.size();
    check(out.shape(0) == 6 && out.size() == 6 * size, "out must be (6, rows, answers)");
    const LeftOut found = left_out(out.data(), size, with_pit);
    machine.work(r.n_chunks(), 4.0 * r.work(), machine.variant.integrate_predict, r.given, r.rows,
                 r.group, found);
}

// Rows to match moments in (MatchInputs).
struct Matching : RowsOfLaw {
    In<1> value;
    Array<const int64_t, 1> ptr;
    Out<2> site, prior_site;
    std::optional<Array<const bool, 1>> sending;
    MatchInputs rows;

    Matching(nb::handle law, nb::handle r, nb::handle state, nb::handle edges)
        : RowsOfLaw(law, r, state, edges), value(get<In<1>>(r, "value")),
          ptr(get<Array<const int64_t, 1>>(r, "ptr")), site(get<Out<2>>(r, "site", false)),
          prior_site(get<Out<2>>(r, "prior_site", false)) {
        const int64_t n = (int64_t)known.shape(0), n_edges = (int64_t)value.shape(0);
        rows = {n, n_edges, 0, std::max<int64_t>(64, n / 512), ptr.data(), value.data(),
                prior_mean.data(), known.data(), log_class.data(), site.data(), prior_site.data(),
                nullptr, nullptr, nullptr, nullptr, nullptr};
        check(is_shaped(ptr, n + 1) && ptr(0) == 0 && ptr(n) == n_edges,
              "ptr must begin at 0 and end with the answers");
        for (int64_t i = 0; i < n; ++i) {
            check(ptr(i) < ptr(i + 1), "every row must have an answer");
            rows.most = std::max(rows.most, ptr(i + 1) - ptr(i));
        }
        check(is_shaped(site, given.n_classes, n_edges) &&
                  is_shaped(prior_site, given.n_classes, n),
              "sites must be (classes, answers) and (classes, rows)");
        check(group.n_tasks == n_edges && group.degree == 1, "edges must be (answers, 1)");
        if (!r.attr("sending").is_none()) {
            sending = get<Array<const bool, 1>>(r, "sending");
            check(is_shaped(*sending, n), "sending must be one per row");
            rows.sending = sending->data();
        }
        take_bias(r, rows);
    }

    int64_t n_chunks() const { return (rows.n_rows + rows.chunk - 1) / rows.chunk; }
    // In nanoseconds.
    double work() const { return 8.0 * (double)(value.size() * given.n_variances * given.n_classes); }
};

static double match(nb::handle law, nb::handle rows, nb::handle state, nb::handle edges,
                    const NewSums& new_sums, const Out<2>& evidence,
                    std::optional<Out<1>> counts, const Machine& machine) {
    const Matching r(law, rows, state, edges);
    const int64_t size = n_counts(r.given), n_chunks = r.n_chunks();
    check(evidence.size() == r.log_class.size(), "evidence must be (rows, classes)");
    check(!counts || is_shaped(*counts, size), "counts must be as many as there are");
    std::vector<double> by_chunk(counts ? n_chunks * size : 0), moved(n_chunks, 0.0);
    const MatchFound found{evidence.data(), moved.data(), counts ? by_chunk.data() : nullptr};
    machine.sweep(n_chunks, r.work(), r.group, new_sums, machine.variant.match, r.given, r.rows,
                  r.group, found);
    if (counts) std::fill(counts->data(), counts->data() + size, 0.0);
    for (size_t i = 0; i < by_chunk.size(); ++i) counts->data()[i % size] += by_chunk[i];
    return std::accumulate(moved.begin(), moved.end(), 0.0);
}

static void match_predict(nb::handle law, nb::handle rows, nb::handle state, nb::handle edges,
                          const Out<3>& out, bool with_pit, const Machine& machine) {
    const Matching r(law, rows, state, edges);
    const size_t size = r.value.size();
    check(out.shape(0) == 6 && out.size() == 6 * size, "out must be (6, answers, 1)");
    const LeftOut found = left_out(out.data(), size, with_pit);
    machine.work(r.n_chunks(), r.work(), machine.variant.match_predict, r.given, r.rows, r.group,
                 found);
}

static void centre(const In<3>& value, double per_unit, const Out<3>& away, const Out<2>& origin,
                   const Machine& machine) {
    const int64_t n = value.shape(0), degree = value.shape(1), d = value.shape(2);
    check(degree > 0 && is_shaped(away, n, degree, d) && is_shaped(origin, n, d),
          "away must be like value (tasks, answers, dimension), origin (tasks, dimension)");
    const Centring c{n, degree, d, value.data(), per_unit, away.data(), origin.data()};
    machine.work(machine.blocks(n), (double)(n * d * degree * degree), machine.variant.centre, c);
}

template <Elementary Variant::*FUNCTION>
static void elementary(const In<1>& x, const Out<1>& out, const std::string& instruction_set) {
    check(is_shaped(out, x.shape(0)), "x and out must be equally long");
    (find_variant(instruction_set).*FUNCTION)(x.data(), out.data(), (int64_t)x.shape(0));
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
    nb::class_<Tables>(module, "Tables")
        .def(nb::init<const std::vector<double>&, int64_t, int64_t, double>())
        .def_prop_ro("n_configurations", &Tables::n_configurations);
    nb::class_<Tasks>(module, "Tasks")
        .def(nb::init<const Tables&, In<3>, In<2>, Machine, std::optional<Out<1>>, double,
                      int64_t>(),
             nb::keep_alive<1, 2>(), "tables"_a, "value"_a, "prior_mean"_a, "machine"_a,
             "factor"_a = nb::none(), "accuracy"_a = 0.0, "most_free"_a = 0)
        .def("enumerate", &Tasks::enumerate)
        .def("prune", &Tasks::prune)
        .def("guess", &Tasks::guess)
        .def("posterior", &Tasks::posterior);
    module.def("integrate", &integrate, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
               nb::arg(), nb::arg().none(), nb::arg());
    module.def("integrate_posterior", &integrate_posterior);
    module.def("integrate_predict", &integrate_predict);
    module.def("match", &match, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
               nb::arg().none(), nb::arg());
    module.def("match_predict", &match_predict);
    module.def("centre", &centre);
    module.def("exp", &elementary<&Variant::exp>, "x"_a, "out"_a, "instruction_set"_a = "");
    module.def("exp2", &elementary<&Variant::exp2>, "x"_a, "out"_a, "instruction_set"_a = "");
    module.def("log", &elementary<&Variant::log>, "x"_a, "out"_a, "instruction_set"_a = "");
}

}  // namespace voxpop
