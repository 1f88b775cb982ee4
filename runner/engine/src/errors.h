// Exceptions of the engine. The Python bindings map an exception to the class of the same name in
// chakrascope.errors.
#pragma once

#include <stdexcept>

namespace chakrascope::engine {

struct ConfigError : std::runtime_error {
    using std::runtime_error::runtime_error;
};
struct WorkloadFormatError : std::runtime_error {
    using std::runtime_error::runtime_error;
};
struct DependencyError : std::runtime_error {
    using std::runtime_error::runtime_error;
};
struct BackendError : std::runtime_error {
    using std::runtime_error::runtime_error;
};
struct Cancelled : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace chakrascope::engine
