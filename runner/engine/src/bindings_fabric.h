// Bindings of the fabric models.
#pragma once

#include <nanobind/nanobind.h>

#include "fabric/fabric.h"
#include "packet/settings.h"

namespace chakrascope::engine {

void bind_fabric(nanobind::module_& module);

// Read a fabric, or the packet settings, from a Python object.
Fabric fabric_of(nanobind::handle given);
packet::Settings packet_settings_of(nanobind::handle fabric);

}  // namespace chakrascope::engine
