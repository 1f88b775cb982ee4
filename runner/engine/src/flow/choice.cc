// The network of `flow`: fluids, or packets where the first messages have so few that these cost no more.
#include <memory>
#include <vector>

#include "../network/network.h"
#include "few_packets.h"
#include "flow_network.h"

namespace chakrascope::engine {
namespace {

// Keeps the messages of the first instant until there are enough to choose by, or the next instant begins:
// a network that is not chosen is never built.
class ChoiceNetwork final : public Network {
  public:
    ChoiceNetwork(const Config& config, EventQueue& events, Mailbox& mailbox)
        : config_(config), events_(events), mailbox_(mailbox) {
        events_.set_source<&ChoiceNetwork::begin>(this);
    }

    void carry(std::uint32_t message) override {
        if (chosen_) return chosen_->carry(message);
        const std::uint64_t payload = config_.packet.payload_bytes;
        const std::uint64_t bytes = mailbox_.size(message);
        flow::check_message(mailbox_.route(message), bytes);
        packets_ += (bytes + payload - 1) / payload;
        kept_.push_back({message, events_.origin()});
        if (kept_.size() == flow::kFirst) choose();
    }

    const std::vector<LinkUse>& links() const override { return network().links(); }
    const FabricReport* report() const override { return network().report(); }

  private:
    struct Kept {
        std::uint32_t message;
        Origin origin;
    };

    // Nothing has passed but ticks without messages; whoever is chosen is asked from now on.
    bool begin(std::int64_t) {
        if (kept_.empty()) return false;
        choose();
        return true;
    }

    void choose() {
        if (flow::cheap_by_packets(packets_, kept_.size())) {
            packet_config_ = std::make_unique<Config>(config_);
            packet_config_->packets_a_message = flow::kMore * flow::kAsCheap;
            chosen_ = make_packet_network(*packet_config_, events_, mailbox_);
        } else {
            chosen_ = make_fluid_network();
        }
        const Origin origin = events_.origin();
        for (const Kept& kept : kept_) {
            events_.set_origin(kept.origin);
            chosen_->carry(kept.message);
        }
        events_.set_origin(origin);
        kept_ = {};
    }

    std::unique_ptr<Network> make_fluid_network() const {
        return std::make_unique<flow::FlowNetwork>(config_, events_, mailbox_);
    }

    // Where no message came, too.
    const Network& network() const {
        if (!chosen_) chosen_ = make_fluid_network();
        return *chosen_;
    }

    const Config& config_;
    EventQueue& events_;
    Mailbox& mailbox_;
    std::uint64_t packets_ = 0;
    std::vector<Kept> kept_;
    std::unique_ptr<Config> packet_config_;
    mutable std::unique_ptr<Network> chosen_;
};

}  // namespace

std::unique_ptr<Network> make_flow_network(const Config& config, EventQueue& events, Mailbox& mailbox) {
    if (config.packets_for_few) return std::make_unique<ChoiceNetwork>(config, events, mailbox);
    return std::make_unique<flow::FlowNetwork>(config, events, mailbox);
}

}  // namespace chakrascope::engine
