// The Python bindings of fabrics and of their network models.
#pragma once

#include <nanobind/nanobind.h>

namespace chakrascope::engine {

void bind_fabric(nanobind::module_& module);

}  // namespace chakrascope::engine
