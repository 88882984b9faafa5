// The kernels of a rich noise model, as functions of voxpop._native.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "binding.hpp"
#include "mixtures.hpp"

using namespace nanobind::literals;

namespace voxpop {

using Matrix = nb::ndarray<nb::numpy, double, nb::ndim<2>>;

static MixtureGrid grid_of(const In1& variance, const In3& mixing) {
    check(mixing.shape(2) == variance.shape(0) && mixing.size() > 0,
          "mixing must be (classes, levels, variances)");
    return MixtureGrid{(int64_t)mixing.shape(0), (int64_t)mixing.shape(1),
                       (int64_t)mixing.shape(2), variance.data(), mixing.data()};
}

static MixtureRows rows_of(
    const MixtureGrid& grid, const In2& centre, const In2& spread, const In3& incoming,
    const In2& log_class, const In2& x, const In2& log_weight) {
    const size_t n = centre.shape(0), degree = centre.shape(1), n_nodes = x.shape(1);
    check(degree > 0 && n_nodes > 0, "there must be answers and nodes");
    check(spread.shape(0) == n && spread.shape(1) == degree && incoming.shape(0) == n &&
              incoming.shape(1) == degree && (int64_t)incoming.shape(2) == grid.n_levels,
          "spread must be (rows, answers), incoming (rows, answers, levels)");
    check(log_class.shape(0) == n && (int64_t)log_class.shape(1) == grid.n_classes,
          "log_class must be (rows, classes)");
    check(x.shape(0) == n && log_weight.shape(0) == n && log_weight.shape(1) == n_nodes,
          "x and log_weight must be (rows, nodes)");
    return MixtureRows{(int64_t)n, (int64_t)degree, (int64_t)n_nodes, centre.data(), spread.data(),
                       incoming.data(), log_class.data(), x.data(), log_weight.data()};
}

static int64_t n_chunks(int64_t n_rows) { return (n_rows + rows_per_chunk - 1) / rows_per_chunk; }

// About the nanoseconds that one thread needs.
static double work_of(const MixtureGrid& grid, const MixtureRows& rows) {
    return 0.5 * (double)(rows.n_rows * rows.degree * grid.n_variances * rows.n_nodes);
}

static void mixture_send(
    const In1& variance, const In3& mixing, const In2& centre, const In2& spread,
    const In3& incoming, const In2& log_class, const In2& x, const In2& log_weight,
    const Out3& message, const Out2& evidence, const Out2& shift, const Out2& shift_variance,
    const Out3& mass, const Out3& pairs, int n_threads, const std::string& instruction_set) {
    const MixtureKernels& kernels = *find_variant(instruction_set).mixture;
    const MixtureGrid grid = grid_of(variance, mixing);
    const MixtureRows rows = rows_of(grid, centre, spread, incoming, log_class, x, log_weight);
    const size_t n_answers = centre.size(), n_classes = log_class.size();
    check(message.size() == incoming.size() && evidence.size() == n_classes &&
              shift.size() == n_answers && shift_variance.size() == n_answers &&
              mass.size() == n_classes * x.shape(1) && pairs.size() == mixing.size(),
          "results must be of the shapes that the rows ask for");
    const int64_t chunks = n_chunks(rows.n_rows), size = (int64_t)pairs.size();
    nb::gil_scoped_release release;
    std::vector<double> by_chunk(chunks * size);
    const MixtureHeard heard{message.data(), evidence.data(), shift.data(), shift_variance.data(),
                             mass.data(), by_chunk.data()};
    work_on_threads(chunks, work_of(grid, rows), n_threads,
                    [&](int64_t first, int64_t last, Workspace& workspace) {
                        kernels.send(grid, rows, heard, first, last, workspace);
                    });
    std::fill(pairs.data(), pairs.data() + size, 0.0);
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
        for (int64_t i = 0; i < size; ++i) pairs.data()[i] += by_chunk[chunk * size + i];
}

static void mixture_predict(
    const In1& variance, const In3& mixing, const In2& centre, const In2& spread,
    const In3& incoming, const In2& log_class, const In2& x, const In2& log_weight,
    const Out2& log_density, const Out2& pit, const Out2& mean, const Out2& truth_variance,
    const Out2& answer_variance, int n_threads, const std::string& instruction_set) {
    const MixtureKernels& kernels = *find_variant(instruction_set).mixture;
    const MixtureGrid grid = grid_of(variance, mixing);
    const MixtureRows rows = rows_of(grid, centre, spread, incoming, log_class, x, log_weight);
    for (const Out2* out : {&log_density, &pit, &mean, &truth_variance, &answer_variance})
        check(out->size() == centre.size(), "results must be (rows, answers)");
    const MixturePrediction found{log_density.data(), pit.data(), mean.data(),
                                  truth_variance.data(), answer_variance.data()};
    nb::gil_scoped_release release;
    work_on_threads(n_chunks(rows.n_rows), 4.0 * work_of(grid, rows), n_threads,
                    [&](int64_t first, int64_t last, Workspace& workspace) {
                        kernels.predict(grid, rows, found, first, last, workspace);
                    });
}

// Hand a matrix over to Python.
static Matrix matrix(std::unique_ptr<double[]> data, size_t n, size_t m) {
    double* held = data.release();
    nb::capsule owner(held, [](void* p) noexcept { delete[] static_cast<double*>(p); });
    return Matrix(held, {n, m}, owner);
}

static nb::tuple mixture_place(
    const In2& centre, const In2& narrow, const In1& wide, const In1& prior_centre,
    double prior_narrow, double prior_variance, const In1& low, const In1& high, double accuracy, int n_threads,
    const std::string& instruction_set) {
    const Variant& variant = find_variant(instruction_set);
    const int64_t n = (int64_t)centre.shape(0), degree = (int64_t)centre.shape(1);
    check(n > 0 && degree > 0 && narrow.size() == centre.size(),
          "centre and narrow must be (rows, answers)");
    for (const In1* per_row : {&wide, &prior_centre, &low, &high})
        check((int64_t)per_row->size() == n, "expected one number per row");
    const MixtureReach reach{n, degree, centre.data(), narrow.data(), wide.data(),
                             prior_centre.data(), prior_narrow, prior_variance, low.data(), high.data(),
                             accuracy};
    const int64_t lanes = variant.lanes, blocks = (n + lanes - 1) / lanes;
    std::unique_ptr<double[]> x, log_weight;
    int64_t n_nodes = 0;
    {
        nb::gil_scoped_release release;
        // Nodes of every block, one row per lane, until it is known how many the longest row has.
        struct Column {
            std::vector<double> x, log_weight;
        };
        std::vector<Column> columns(blocks);
        const double work = 400.0 * (double)(n * (degree + 3));
        work_on_threads(
            blocks, work, n_threads, [&](int64_t first, int64_t last, Workspace& workspace) {
                for (int64_t b = first; b < last; ++b) {
                    const MixtureNodes found = variant.mixture->place(reach, b, workspace);
                    const int64_t size = found.n * lanes;
                    columns[b].x.assign(found.x, found.x + size);
                    columns[b].log_weight.assign(found.log_weight, found.log_weight + size);
                }
            });
        for (const Column& column : columns)
            n_nodes = std::max(n_nodes, (int64_t)column.x.size() / lanes);
        x.reset(new double[n * n_nodes]), log_weight.reset(new double[n * n_nodes]);
        for (int64_t row = 0; row < n; ++row) {
            const Column& column = columns[row / lanes];
            const int64_t own = (int64_t)column.x.size() / lanes, lane = row % lanes;
            for (int64_t q = 0; q < n_nodes; ++q) {
                // Past a row's end its last node is repeated, and weighs nothing.
                const int64_t from = std::min(q, own - 1) * lanes + lane;
                x[row * n_nodes + q] = column.x[from];
                log_weight[row * n_nodes + q] = column.log_weight[from];
            }
        }
    }
    return nb::make_tuple(matrix(std::move(x), n, n_nodes),
                          matrix(std::move(log_weight), n, n_nodes));
}

void bind_mixture(nb::module_& module) {
    module.def("mixture_place", &mixture_place, "centre"_a, "narrow"_a, "wide"_a,
               "prior_centre"_a, "prior_narrow"_a, "prior_variance"_a, "low"_a, "high"_a, "accuracy"_a,
               "n_threads"_a, "instruction_set"_a = "");
    module.def("mixture_send", &mixture_send, "variance"_a, "mixing"_a, "centre"_a, "spread"_a,
               "incoming"_a, "log_class"_a, "x"_a, "log_weight"_a, "message"_a, "evidence"_a,
               "shift"_a, "shift_variance"_a, "mass"_a, "pairs"_a, "n_threads"_a,
               "instruction_set"_a = "");
    module.def("mixture_predict", &mixture_predict, "variance"_a, "mixing"_a, "centre"_a,
               "spread"_a, "incoming"_a, "log_class"_a, "x"_a, "log_weight"_a, "log_density"_a,
               "pit"_a, "mean"_a, "truth_variance"_a, "answer_variance"_a, "n_threads"_a,
               "instruction_set"_a = "");
}

}  // namespace voxpop
