// The Python face of what answers questions about results.
#pragma once

#include <nanobind/nanobind.h>

namespace chakrascope::engine {

void bind_analysis(nanobind::module_& module);

}  // namespace chakrascope::engine
