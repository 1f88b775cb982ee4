// The Python face of fabrics and of the models on them.
#pragma once

#include <nanobind/nanobind.h>

namespace chakrascope::engine {

void bind_fabric(nanobind::module_& module);

}  // namespace chakrascope::engine
