// What is wrong with a file.
#pragma once

#include <stdexcept>

namespace chakrascope::parquet {

// Becomes ValueError in Python.
class Damaged : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

}  // namespace chakrascope::parquet
