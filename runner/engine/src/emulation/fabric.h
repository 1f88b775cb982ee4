// Messages over libfabric, whose providers reach verbs, EFA, Slingshot, TCP and shared memory.
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
    // The identity of a rank, and the key that every packet of the run carries, to reject
    // strangers.
    struct Identity {
        std::int32_t rank;
        std::string key;
    };

    // Open an endpoint for each address (of a network interface, if the provider has such). Raises
    // ConfigError for an unknown provider, and BackendError if the engine was built without
    // libfabric or the library is missing.
    static std::unique_ptr<FabricTransport> open(const std::string& provider,
                                                 const std::vector<std::string>& addresses,
                                                 const Identity& identity);
    // The providers that this host has.
    static std::vector<std::string> providers();
    // Whether the engine was built with libfabric.
    static bool is_built();

    // The name of each endpoint, in bytes, which other ranks need to reach it.
    virtual std::vector<std::string> names() const = 0;
    // Connect to the other ranks by the names of their endpoints. Raises BackendError for a rank
    // that has not answered by the deadline.
    virtual void join(const std::map<std::int32_t, std::vector<std::string>>& peers, Time deadline) = 0;
};

}  // namespace chakrascope::emulation
