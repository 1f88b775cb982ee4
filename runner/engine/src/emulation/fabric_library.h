// Loads libfabric on first use, so that an engine built with libfabric also runs on hosts without
// libfabric.
#pragma once

#include <rdma/fabric.h>

#include <memory>
#include <string>
#include <vector>

namespace chakrascope::emulation {

class FabricLibrary {
  public:
    // Return the libfabric library of this process. Raises BackendError if the library is missing.
    static const FabricLibrary& get();

    struct Free {
        void operator()(fi_info* info) const { get().freeinfo(info); }
    };
    using Info = std::unique_ptr<fi_info, Free>;

    // Return the provider's description of endpoints for reliable messages at an address. Raises
    // ConfigError if the provider has no such endpoint.
    Info find(const std::string& provider, const std::string& address) const;

    // Return the providers of reliable messages on this host.
    std::vector<std::string> providers() const;

    decltype(&fi_fabric) fabric = nullptr;
    decltype(&fi_freeinfo) freeinfo = nullptr;

    // Raise BackendError if `code`, the return value of a libfabric function, is an error.
    void check(long code, const std::string& what) const;
    std::string text(long code) const;

  private:
    FabricLibrary();
    Info ask(const char* provider, const char* address) const;

    decltype(&fi_getinfo) getinfo_ = nullptr;
    decltype(&fi_dupinfo) dupinfo_ = nullptr;
    decltype(&fi_strerror) strerror_ = nullptr;
};

}  // namespace chakrascope::emulation
