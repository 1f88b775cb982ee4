// The packet network, which has its own clock and runs in lockstep with the ranks.
#include <algorithm>

#include "../packet/simulation.h"
#include "network.h"

namespace chakrascope::engine {
namespace {

constexpr Ticks kForever = Ticks{1} << 62;

class PacketNetwork final : public Network {
  public:
    PacketNetwork(const Config& config, EventQueue& events, Mailbox& mailbox)
        : hosts_(config.fabric.hosts),
          events_(events),
          mailbox_(mailbox),
          simulation_(config.fabric, config.packet),
          devices_(number_devices(config.fabric)) {
        events_.set_source<&PacketNetwork::advance>(this);
    }

    void carry(std::uint32_t message) override {
        const Route route = mailbox_.route(message);
        const std::uint64_t size = mailbox_.size(message);
        const auto now = static_cast<std::int64_t>(events_.now());
        // Mailbox slots are reused only after the message in the slot has arrived.
        if (carried_.size() <= message) carried_.resize(message + 1);
        carried_[message] = {{route.source, route.destination, size, now, 0}, events_.origin()};
        simulation_.send(message, hosts_[static_cast<std::size_t>(route.source)],
                         hosts_[static_cast<std::size_t>(route.destination)], size, now * kTicksPerNs);
        ++in_flight_;
    }

    const std::vector<LinkUse>& links() const override {
        links_.clear();
        for (const FabricLinkUse& use : report()->links) {
            links_.push_back({use.source, use.destination, use.bytes,
                              static_cast<Time>(use.busy / kTicksPerNs),
                              static_cast<Time>(use.queued / kTicksPerNs), use.packets});
        }
        return links_;
    }

    bool misled_by_trains() const override { return simulation_.trains_misled(); }

    const FabricReport* report() const override {
        report_ = simulation_.report();
        report_.flows = flows_;
        const auto rename = [this](auto& items) {
            for (auto& item : items) {
                item.source = devices_[static_cast<std::size_t>(item.source)];
                item.destination = devices_[static_cast<std::size_t>(item.destination)];
            }
        };
        rename(report_.links);
        rename(report_.intervals);
        return &report_;
    }

  private:
    struct Carried {
        FlowRecord flow;
        Origin origin;
    };

    // Simulate packets up to the limit, and return whether any message arrived.
    bool advance(std::int64_t limit) {
        if (in_flight_ == 0) return false;
        bool cancelled = false;
        const Ticks until = limit >= 0 && limit < kForever / kTicksPerNs ? limit * kTicksPerNs : kForever;
        const auto keep_going = [&](Ticks now) {
            cancelled = !events_.keep_going(static_cast<Time>(now / kTicksPerNs));
            return !cancelled;
        };
        const auto& completions = simulation_.run(until, keep_going);
        if (simulation_.trains_misled()) {
            events_.stop();
            return false;
        }
        if (completions.empty() && until == kForever && !cancelled) throw lost();
        for (const packet::Completion& completion : completions) {
            Carried& carried = carried_[completion.message];
            carried.flow.end_ns = (completion.time + kTicksPerNs - 1) / kTicksPerNs;
            flows_.push_back(carried.flow);
            events_.set_origin(carried.origin);
            events_.at(std::max(static_cast<Time>(carried.flow.end_ns), events_.now()),
                       bind<&Mailbox::arrived>(&mailbox_, completion.message));
            --in_flight_;
        }
        return !completions.empty();
    }

    BackendError lost() const {
        return BackendError(
            std::to_string(in_flight_) +
            " messages never arrive: their packets were lost and RETRANSMIT_TIMEOUT is 0, or switches pause "
            "each other in a deadlock; set RETRANSMIT_TIMEOUT (us), or give the switches a larger "
            "BUFFER_SIZE "
            "(MiB).");
    }

    const std::vector<std::int32_t>& hosts_;
    EventQueue& events_;
    Mailbox& mailbox_;
    packet::Simulation simulation_;
    const std::vector<std::int32_t> devices_;
    std::vector<Carried> carried_;  // messages by their slot in the mailbox
    std::vector<FlowRecord> flows_;
    std::uint64_t in_flight_ = 0;
    mutable FabricReport report_;
    mutable std::vector<LinkUse> links_;
};

}  // namespace

std::unique_ptr<Network> make_packet_network(const Config& config, EventQueue& events, Mailbox& mailbox) {
    return std::make_unique<PacketNetwork>(config, events, mailbox);
}

}  // namespace chakrascope::engine
