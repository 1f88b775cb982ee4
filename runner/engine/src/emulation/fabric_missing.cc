#include "../errors.h"
#include "fabric.h"

namespace chakrascope::emulation {

std::unique_ptr<FabricTransport> FabricTransport::open(const std::string&, const std::vector<std::string>&,
                                                       const Identity&) {
    throw engine::BackendError("This engine was built without libfabric.");
}

std::vector<std::string> FabricTransport::providers() { return {}; }

bool FabricTransport::is_built() { return false; }

}  // namespace chakrascope::emulation
