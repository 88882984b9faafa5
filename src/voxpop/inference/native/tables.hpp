// Tables of the joint enumeration that depend on the model and the degree only.
#pragma once

#include <vector>

#include "sweeps.hpp"

namespace voxpop {

class Tables {
public:
    const std::vector<double> levels;
    const int64_t degree, dimension;
    const double prior_precision;

    Tables(const std::vector<double>& levels, int64_t degree, int64_t dimension,
           double prior_precision);
    Tables(const Tables&) = delete;

    // The tables without any values.
    Enumeration enumeration() const;
    int64_t n_levels() const { return (int64_t)levels.size(); }
    int64_t n_configurations() const { return left_.n_configurations * right_.n_configurations; }

private:
    struct Side : Half {
        std::vector<double> gains, costs;
        std::vector<double> precision, log_product;  // W, and Σ log s, per configuration
        std::vector<double> precision_before;        // W without the last worker
    };
    static Side grow(const std::vector<double>& levels, int64_t n_workers, double start);
    std::vector<int64_t> number_rows();

    Side left_, right_;
    std::vector<int32_t> row_;
    std::vector<double> pair_, join_, meet_;
};

}  // namespace voxpop
