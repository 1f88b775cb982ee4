// The interface to a network outside the engine, such as a packet-level simulator, which has its own
// clock and runs in lockstep with the ranks.
#include <algorithm>

#include "network.h"

namespace chakrascope::engine {
namespace {

class ExternalNetwork final : public Network {
  public:
    ExternalNetwork(const Config& config, EventQueue& events, Mailbox& mailbox)
        : advance_(config.external_network), events_(events), mailbox_(mailbox) {
        events_.set_source<&ExternalNetwork::advance>(this);
    }

    // Post a message to the external network. Messages get unique numbers, because mailbox slots are
    // reused while the external network may still refer to them.
    void carry(std::uint32_t message) override {
        const Route route = mailbox_.route(message);
        posted_.emplace_back(next_, route.source, route.destination, mailbox_.size(message),
                             static_cast<std::int64_t>(events_.now()));
        in_flight_.emplace(next_++, Carried{message, events_.origin()});
    }

    // Return no links, because the external network records the traffic of links.
    const std::vector<LinkUse>& links() const override { return links_; }

  private:
    struct Carried {
        std::uint32_t message;
        Origin origin;
    };

    // Let the external network simulate up to the time limit, and return whether any message arrived.
    bool advance(std::int64_t limit) {
        if (in_flight_.empty()) return false;
        const std::vector<ExternalArrival> arrivals = advance_(posted_, limit);
        posted_.clear();
        for (const auto& [number, time] : arrivals) {
            const auto entry = in_flight_.find(number);
            if (entry == in_flight_.end()) continue;
            events_.set_origin(entry->second.origin);
            events_.at(std::max(static_cast<Time>(time), events_.now()),
                       bind<&Mailbox::arrived>(&mailbox_, entry->second.message));
            in_flight_.erase(entry);
        }
        return !arrivals.empty();
    }

    const ExternalAdvance& advance_;
    EventQueue& events_;
    Mailbox& mailbox_;
    std::uint64_t next_ = 0;
    std::vector<ExternalMessage> posted_;
    std::unordered_map<std::uint64_t, Carried> in_flight_;
    std::vector<LinkUse> links_;
};

}  // namespace

std::unique_ptr<Network> make_external_network(const Config& config, EventQueue& events, Mailbox& mailbox) {
    return std::make_unique<ExternalNetwork>(config, events, mailbox);
}

}  // namespace chakrascope::engine
