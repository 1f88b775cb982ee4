// Messages over libfabric, whose providers reach the networks that it knows: verbs, EFA, Slingshot, TCP,
// shared memory.
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
    // Who a rank is, and what tells it apart from strangers: every packet of the run bears its key.
    struct Identity {
        std::int32_t rank;
        std::string key;
    };

    // Open an endpoint for each address (of network interfaces, where the provider knows such). Raises
    // ConfigError for a provider that there is not, and BackendError where the engine was built without
    // libfabric, or the library is missing.
    static std::unique_ptr<FabricTransport> open(const std::string& provider,
                                                 const std::vector<std::string>& addresses,
                                                 const Identity& identity);
    // The providers that this host has.
    static std::vector<std::string> providers();
    // Whether the engine was built with libfabric.
    static bool is_built();

    // What other ranks need to reach each endpoint: bytes.
    virtual std::vector<std::string> names() const = 0;
    // Meet the others, by their ranks and the names of their endpoints. Raises BackendError for one that has
    // not been heard of by the deadline.
    virtual void join(const std::map<std::int32_t, std::vector<std::string>>& peers, Time deadline) = 0;
};

}  // namespace chakrascope::emulation
