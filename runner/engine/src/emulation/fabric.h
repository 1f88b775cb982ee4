// Carries messages over libfabric, which has providers for verbs, EFA, Slingshot, TCP and shared
// memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transport.h"

namespace chakrascope::emulation {

class FabricTransport : public Transport {
  public:
    // The identity of a rank, and the key of the run. Packets without this key are rejected.
    struct Identity {
        std::int32_t rank;
        std::string key;
    };

    // Open an endpoint for each address, such as the address of a network interface. Raises ConfigError
    // for an unknown provider. Raises BackendError if the engine was built without libfabric, or if the
    // library is missing.
    static std::unique_ptr<FabricTransport> open(const std::string& provider,
                                                 const std::vector<std::string>& addresses,
                                                 const Identity& identity);
    // Return the names of the providers on this host.
    static std::vector<std::string> providers();
    // Whether the engine was built with libfabric.
    static bool is_built();

    // Return the name of each endpoint, as bytes. Other ranks need the names to connect.
    virtual std::vector<std::string> names() const = 0;
    // Connect to other ranks by the names of their endpoints. Raises BackendError if a rank does not
    // answer before the deadline.
    virtual void join(const std::map<std::int32_t, std::vector<std::string>>& peers, Time deadline) = 0;
};

}  // namespace chakrascope::emulation
