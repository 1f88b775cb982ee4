// The network of the GPU model: proxies carry messages between GPUs over the same networks as
// collectives.
#include "../system/gpus.h"
#include "network.h"

namespace chakrascope::engine {
namespace {

class GpuNetwork final : public Network {
  public:
    GpuNetwork(const Config& config, EventQueue& events, Mailbox& mailbox)
        : ranks_(static_cast<std::int32_t>(config.num_ranks())),
          node_(config.gpu->machine.gpus),
          mailbox_(mailbox),
          gpus_(*config.gpu, ranks_, config.fold, events) {}

    void carry(std::uint32_t message) override {
        const Route route = mailbox_.route(message);
        gpus_.transfer(route.source, route.destination, mailbox_.size(message),
                       bind<&Mailbox::arrived>(&mailbox_, message));
    }

    // Return the traffic of links. The switches of nodes are numbered after the ranks, and the network
    // between nodes is numbered after the switches.
    const std::vector<LinkUse>& links() const override {
        links_.clear();
        for (const gpu::LinkReport& link : gpus_.links()) {
            if (link.lines == 0) continue;
            const std::int32_t gpu = std::max(link.source, link.destination);
            const auto device = [&](std::int32_t end) {
                const std::int32_t nodes = (ranks_ + node_ - 1) / node_;
                if (end >= 0) return end;
                return ranks_ + (end == gpu::kSwitch ? gpu / node_ : nodes);
            };
            links_.push_back({device(link.source), device(link.destination), link.bytes,
                              static_cast<Time>(link.busy / gpu::kFsPerNs),
                              static_cast<Time>(link.queued / gpu::kFsPerNs), link.lines});
        }
        return links_;
    }

    Gpus* gpus() override { return &gpus_; }

  private:
    const std::int32_t ranks_;
    const std::int32_t node_;
    Mailbox& mailbox_;
    Gpus gpus_;
    mutable std::vector<LinkUse> links_;
};

}  // namespace

std::unique_ptr<Network> make_gpu_network(const Config& config, EventQueue& events, Mailbox& mailbox) {
    return std::make_unique<GpuNetwork>(config, events, mailbox);
}

}  // namespace chakrascope::engine
