from torchrl_elegant import Callback, SACConfig, train


class Enough(Callback):
    def on_evaluation(self, run, evaluation):
        run.log("worst_return", min(evaluation.returns))
        if min(evaluation.returns) > -400:
            run.stop("no episode is bad any more")


train(SACConfig(), "Pendulum-v1", total_frames=5_000, callbacks=[Enough()])
