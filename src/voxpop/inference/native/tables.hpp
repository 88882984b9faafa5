// Tables of the joint enumeration that depend on the model and the degree only.
#pragma once

#include <vector>

#include "sweeps.hpp"

namespace voxpop {

class Tables {
public:
    Tables(const std::vector<double>& levels, int64_t degree, int64_t dimension,
           double prior_precision);
    Tables(const Tables&) = delete;

    // The tables without any values.
    Enumeration enumeration() const;
    int64_t n_levels() const { return n_levels_; }
    int64_t degree() const { return degree_; }
    int64_t dimension() const { return dimension_; }
    int64_t n_configurations() const { return left_.n_configurations * right_.n_configurations; }

private:
    struct Side {
        int64_t n_workers, n_configurations, widest, tree_size;
        std::vector<double> gain, cost;
        std::vector<double> precision, log_product;  // W, and Σ log s, per configuration
        std::vector<double> precision_before;        // W without the last worker
    };
    static Side grow(const std::vector<double>& levels, int64_t n_workers, double start);
    static Half half(const Side& side);
    std::vector<int64_t> number_rows();

    int64_t n_levels_, degree_, dimension_;
    bool has_prior_;
    Side left_, right_;
    std::vector<int32_t> row_;
    std::vector<double> pair_, join_, meet_;
};

}  // namespace voxpop
