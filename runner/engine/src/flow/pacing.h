// Progress of the flows of each bundle, and the flow that ends next.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "ends.h"

namespace chakrascope::engine::flow {

// The service (bytes per flow) of bundles. All flows of a bundle have the same rate. The key of a flow is the
// service at which the flow ends.
class Pacing {
  public:
    struct Leaving {
        double key;
        std::uint32_t flow;
        bool operator<(const Leaving& other) const {
            return key != other.key ? key > other.key : flow > other.flow;
        }
    };

    std::size_t size() const { return paces_.size(); }
    void add() {
        paces_.emplace_back();
        leaving_.emplace_back();
        ends_.set(static_cast<std::uint32_t>(paces_.size() - 1), Ends::kNever);
    }
    double rate(std::uint32_t bundle) const { return paces_[bundle].rate; }
    // Return the bytes that each flow of the bundle has been served since the bundle's counter was reset.
    double served(std::uint32_t bundle, double time) const {
        const Pace& pace = paces_[bundle];
        return pace.served + pace.rate * (time - pace.since);
    }
    std::span<const Leaving> leaving(std::uint32_t bundle) const { return leaving_[bundle]; }

    // Add a flow to the bundle. The caller then sets the bundle's rate, or calls `update` if the rate is
    // unchanged.
    void join(std::uint32_t bundle, std::uint32_t flow, double amount, double time) {
        advance(paces_[bundle], time);
        std::vector<Leaving>& leaving = leaving_[bundle];
        leaving.push_back({paces_[bundle].served + amount, flow});
        std::push_heap(leaving.begin(), leaving.end());
        paces_[bundle].key = leaving.front().key;
    }
    void update(std::uint32_t bundle) { ends_.set(bundle, next_end(paces_[bundle])); }

    // Set the rates that the given bundles have from now on. `rate` returns the rate of a bundle.
    template <class Rate>
    void set_rates(const std::vector<std::uint32_t>& bundles, double time, const Rate& rate) {
        const bool many = bundles.size() * kManyOf > ends_.size();
        for (const std::uint32_t bundle : bundles) {
            Pace& pace = paces_[bundle];
            advance(pace, time);
            pace.rate = rate(bundle);
            many ? ends_.put(bundle, next_end(pace)) : ends_.set(bundle, next_end(pace));
        }
        if (many) ends_.replay();
    }

    // Return the bundle whose flow ends first, at `first_time` (Ends::kNever without flows).
    std::uint32_t first() const { return ends_.first(); }
    double first_time() const { return ends_.first_time(); }
    // Return the flow of the bundle that ends first. The bundle must have a flow.
    std::uint32_t first_flow(std::uint32_t bundle) const { return leaving_[bundle].front().flow; }
    void leave(std::uint32_t bundle) {
        std::vector<Leaving>& leaving = leaving_[bundle];
        std::pop_heap(leaving.begin(), leaving.end());
        leaving.pop_back();
        paces_[bundle].key = leaving.empty() ? Ends::kNever : leaving.front().key;
        update(bundle);
    }

    // Remove a flow before its end, and return its remaining bytes.
    double take(std::uint32_t bundle, std::uint32_t flow, double time) {
        std::vector<Leaving>& leaving = leaving_[bundle];
        const auto place = std::find_if(leaving.begin(), leaving.end(),
                                        [flow](const Leaving& item) { return item.flow == flow; });
        const double left = std::max(place->key - served(bundle, time), 0.0);
        *place = leaving.back();
        leaving.pop_back();
        std::make_heap(leaving.begin(), leaving.end());
        paces_[bundle].key = leaving.empty() ? Ends::kNever : leaving.front().key;
        update(bundle);
        return left;
    }

  private:
    // If at least 1 / kManyOf of all bundles change their rate, times are updated in one batch.
    static constexpr std::size_t kManyOf = 16;

    struct Pace {
        double served = 0;  // bytes served to each of the bundle's flows until `since`
        double since = 0;
        double rate = 0;
        double key = Ends::kNever;  // key of the first flow to end
    };

    static void advance(Pace& pace, double time) {
        // Without flows, the counter restarts at 0, because small numbers have smaller rounding errors.
        pace.served = pace.key == Ends::kNever ? 0 : pace.served + pace.rate * (time - pace.since);
        pace.since = time;
    }
    static double next_end(const Pace& pace) {
        if (pace.key == Ends::kNever || !(pace.rate > 0)) return Ends::kNever;
        return pace.since + (pace.key - pace.served) / pace.rate;
    }

    std::vector<Pace> paces_;
    std::vector<std::vector<Leaving>> leaving_;
    Ends ends_;
};

}  // namespace chakrascope::engine::flow
