// The Python bindings of the GPU model.
#pragma once

#include <nanobind/nanobind.h>

namespace chakrascope::engine {

void bind_gpu(nanobind::module_& module);

}  // namespace chakrascope::engine
