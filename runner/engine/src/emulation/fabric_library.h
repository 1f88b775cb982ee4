// libfabric, loaded on first use, so that an engine built with it also runs without it.
#pragma once

#include <rdma/fabric.h>

#include <memory>
#include <string>
#include <vector>

namespace chakrascope::emulation {

class FabricLibrary {
  public:
    // The library of this process. Raises BackendError if it is missing.
    static const FabricLibrary& get();

    struct Free {
        void operator()(fi_info* info) const { get().freeinfo(info); }
    };
    using Info = std::unique_ptr<fi_info, Free>;

    // The provider's offer of reliable messages from an endpoint at that address. Raises
    // ConfigError.
    Info find(const std::string& provider, const std::string& address) const;

    // The providers with reliable messages on this host.
    std::vector<std::string> providers() const;

    decltype(&fi_fabric) fabric = nullptr;
    decltype(&fi_freeinfo) freeinfo = nullptr;

    // Raise BackendError if `code`, a return value, is an error.
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
