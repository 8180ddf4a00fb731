"""A model of PyTorch, layer by layer: run on this machine, and where its time would go on a V100."""

import torch

import rollergen as rg

net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 32, 3, stride=2, padding=1),
    torch.nn.BatchNorm2d(32),
    torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(32, 10),
    torch.nn.Softmax(-1),
).eval()
image = torch.rand(1, 3, 64, 64)

model = rg.compile(net, (image,))
with torch.no_grad():
    print("largest difference from PyTorch:", float((model(image) - net(image)).abs().max()))
print(model.explain())
print(rg.compile(net, (image,), "v100").explain())
