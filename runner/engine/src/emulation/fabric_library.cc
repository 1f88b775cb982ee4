#include "fabric_library.h"

#include <dlfcn.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <algorithm>
#include <cstring>

#include "../errors.h"

namespace chakrascope::emulation {
namespace {

constexpr std::uint32_t kVersion = FI_VERSION(1, 14);
constexpr const char* kFile = "libfabric.so.1";

}  // namespace

const FabricLibrary& FabricLibrary::get() {
    static const FabricLibrary library;
    return library;
}

FabricLibrary::FabricLibrary() {
    void* file = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
    if (file == nullptr)
        throw engine::BackendError(std::string("There is no ") + kFile +
                                   " on this host. Next: install libfabric1, or your network's own build.");
    const auto load = [&](auto& function, const char* name) {
        function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(file, name));
        if (function == nullptr)
            throw engine::BackendError(std::string(kFile) + " has no '" + name + "'; it is too old.");
    };
    load(getinfo_, "fi_getinfo");
    load(freeinfo, "fi_freeinfo");
    load(dupinfo_, "fi_dupinfo");
    load(fabric, "fi_fabric");
    load(strerror_, "fi_strerror");
}

std::string FabricLibrary::text(long code) const {
    return strerror_(static_cast<int>(code < 0 ? -code : code));
}

void FabricLibrary::check(long code, const std::string& what) const {
    if (code < 0) throw engine::BackendError("libfabric cannot " + what + ": " + text(code) + ".");
}

FabricLibrary::Info FabricLibrary::ask(const char* provider, const char* address) const {
    const Info hints(dupinfo_(nullptr));
    hints->caps = FI_MSG;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode =
        FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    if (provider != nullptr) hints->fabric_attr->prov_name = strdup(provider);
    fi_info* found = nullptr;
    const int code =
        getinfo_(kVersion, address, nullptr, address != nullptr ? FI_SOURCE : 0, hints.get(), &found);
    if (code < 0 && code != -FI_ENODATA) check(code, "look for providers");
    return Info(code < 0 ? nullptr : found);
}

std::vector<std::string> FabricLibrary::providers() const {
    std::vector<std::string> names;
    const Info all = ask(nullptr, nullptr);
    for (const fi_info* info = all.get(); info != nullptr; info = info->next) {
        // The name of a layered provider has several parts, such as tcp;ofi_rxm.
        const std::string whole = info->fabric_attr->prov_name;
        const std::string name = whole.substr(0, whole.find(';'));
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
}

FabricLibrary::Info FabricLibrary::find(const std::string& provider, const std::string& address) const {
    Info anywhere = ask(provider.c_str(), nullptr);
    if (anywhere == nullptr)
        throw engine::ConfigError("libfabric has no provider '" + provider + "' on this host.");
    const auto format = anywhere->addr_format;
    // An endpoint without an IP address cannot be selected by its address.
    if (format != FI_SOCKADDR && format != FI_SOCKADDR_IN && format != FI_SOCKADDR_IN6) return anywhere;
    Info there = ask(provider.c_str(), address.c_str());
    if (there == nullptr)
        throw engine::ConfigError("libfabric's provider '" + provider +
                                  "' has no interface with the address " + address +
                                  ". Next: name addresses of the host's own interfaces under 'nics'.");
    return there;
}

}  // namespace chakrascope::emulation
