#include "endpoint.h"

#include "shared_bus.h"

namespace chakrascope::engine {
namespace {
constexpr Time kGroupDelay = 10;
constexpr double kGiga = 1e9;
}  // namespace

Endpoint::Endpoint(const Config& config, EventQueue& events, std::int32_t rank)
    : events_(events),
      rank_(rank),
      delay_(static_cast<Time>(config.endpoint_delay)),
      memory_bandwidth_(config.local_mem_bw * 1000000000.0) {
    if (config.model_shared_bus == 1) bus_ = std::make_unique<SharedBus>(config, events, rank);
}

Endpoint::~Endpoint() = default;

void Endpoint::pass(const Bundle& bundle, Callback done) {
    Callback next = done;
    if (bundle.processed) next = bind<&Endpoint::processed>(this, hold(bundle.size, done));
    if (bundle.bypass || bus_ == nullptr) {
        events_.after(rank_, delay(bundle.bypass), next);
    } else {
        bus_->request(bundle, next);
    }
}

Time Endpoint::delay(bool bypass) const { return bypass ? kGroupDelay : delay_; }

void Endpoint::processed(std::uint64_t held) {
    const Held data = held_[held];
    free_.push_back(static_cast<std::uint32_t>(held));
    events_.after(rank_, reduction(data.size), data.done);
}

// Return the time of a reduction in memory. The reduction reads twice the bytes of the message, and
// writes the bytes of the message once.
Time Endpoint::reduction(std::uint64_t size) const {
    if (memory_bandwidth_ == 0) return 0;
    return 3 * truncate(static_cast<double>(size) / memory_bandwidth_ * kGiga);
}

std::uint64_t Endpoint::hold(std::uint64_t size, Callback done) {
    if (free_.empty()) {
        held_.push_back({size, done});
        return held_.size() - 1;
    }
    const std::uint32_t place = free_.back();
    free_.pop_back();
    held_[place] = {size, done};
    return place;
}

}  // namespace chakrascope::engine
