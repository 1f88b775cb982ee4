// The Python bindings of emulation: transports, and a rank that runs on one.
#pragma once

#include <nanobind/nanobind.h>

namespace chakrascope::engine {

void bind_emulation(nanobind::module_& module);

}  // namespace chakrascope::engine
