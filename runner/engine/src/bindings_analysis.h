// The Python bindings of the analyses of results.
#pragma once

#include <nanobind/nanobind.h>

namespace chakrascope::engine {

void bind_analysis(nanobind::module_& module);

}  // namespace chakrascope::engine
