// libfabric, loaded when it is first needed: an engine that was built with it runs without it as well.
#pragma once

#include <rdma/fabric.h>

#include <memory>
#include <string>
#include <vector>

namespace chakrascope::emulation {

class FabricLibrary {
  public:
    // The library of this process. Raises BackendError where there is none.
    static const FabricLibrary& get();

    struct Free {
        void operator()(fi_info* info) const { get().freeinfo(info); }
    };
    using Info = std::unique_ptr<fi_info, Free>;

    // What the provider offers for reliable messages from an endpoint at that address. Raises ConfigError.
    Info find(const std::string& provider, const std::string& address) const;

    // Those that have reliable messages on this host.
    std::vector<std::string> providers() const;

    decltype(&fi_fabric) fabric = nullptr;
    decltype(&fi_freeinfo) freeinfo = nullptr;

    // Raise BackendError for what returned `code` where that is an error.
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
